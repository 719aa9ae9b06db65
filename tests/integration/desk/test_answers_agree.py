"""The doors agree: on who is meant, on what is stopped, and on how many there are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celery_reliable.operations import Desk
from tests.integration.commands import Run
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.support.waiting import wait_for


def ids(run: Run, *options: str, project: Project) -> list[str]:
    """The tasks that a list has."""
    found = run("tasks", *options, "--json", project=project).json["items"]
    return [one["task_id"] for one in found]


@pytest.mark.full
def test_a_worker_is_meant_by_the_same_names_everywhere(soon: Project, run: Run) -> None:
    soon.start_worker("one", concurrency=1)
    task = soon.send("gate", "door")
    host = soon.effects.run_of(task.id).worker.partition("@")[2]
    (whole,) = run("workers", "--json", project=soon).json["items"]
    soon.effects.run_of(task.id)
    for name in ("one", f"one@{host}", "on*", "one@*", whole["worker"]):
        assert ids(run, "--worker", name, project=soon) == [task.id], name
    for name in ("on", "two", f"one@{host}x", "one*@"):
        assert ids(run, "--worker", name, project=soon) == [], name

    drained = run("drain", "one", "--reason", "its fan", project=soon)

    assert drained.code == 0
    assert "No living worker" not in drained.err
    # Every door says so.
    (worker,) = run("workers", "--json", project=soon).json["items"]
    assert (worker["state"], worker["drained"]) == ("alive", True)
    for command in (["workers"], ["status"]):
        out = run(*command, project=soon).out
        assert "drained" in out.partition("worker ")[2].partition("\n1 worker")[0], out
    assert "its fan" in run("status", project=soon).out
    waiting = soon.send("work", 0.01)
    soon.effects.open_gate("door")
    task.get(timeout=20)
    wait_for(
        lambda: soon.redis.client().llen("celery") == 1, 20, "the drained worker leaves it there"
    )
    assert soon.effects.runs(waiting.id) == []
    assert run("resume", "one", project=soon).code == 0
    waiting.get(timeout=30)


@pytest.mark.full
def test_an_order_for_nobody_is_refused_unless_it_is_for_later(project: Project, run: Run) -> None:
    def orders() -> list[tuple[str, str]]:
        found = run("orders", "--json").json["items"]
        return [(one["kind"], one["target"]) for one in found]

    for order in (
        ("drain", "w2"),
        ("pause", "invoicse"),
        ("strike", "project.wrok"),
        ("strike", "project.plain_work"),
        ("strike", "project.plain_work", "--later"),
    ):
        ran = run(*order)
        assert (ran.code, ran.out) == (2, ""), ran
        assert order[1] in ran.err
        assert ("--later" in ran.err) != ("plain" in order[1])
    assert orders() == []
    for order in (
        ("drain", "w2", "--later"),
        ("pause", "invoicse", "--later"),
        ("strike", "project.wrok", "--later"),
        ("pause", "celery"),
        ("strike", "project.work"),
        # Some of those are plain.
        ("strike", "project.*"),
    ):
        assert run(*order).code == 0
    assert len(orders()) == 6


def test_a_paused_queue_is_said_to_be_paused_wherever_it_is_shown(
    project: Project, run: Run
) -> None:
    task = project.send("work", 0.01)
    struck = project.send("locked", "7", 0.01)
    run("pause", "celery", "--reason", "the partner's night")
    run("strike", "project.locked")

    listed = {one["task_id"]: one["why"] for one in run("tasks", "--json").json["items"]}
    for one in (task, struck):
        assert listed[one.id]["sentence"] == run("show", one.id, "--json").json["why"]["sentence"]
    assert "the partner's night" in listed[task.id]["sentence"]
    (queue,) = run("status", "--json").json["queues"]
    assert queue["paused"] is True
    out = run("status").out
    (line,) = [line for line in out.splitlines() if line.startswith("celery ")]
    assert "paused" in line, out


def test_who_was_revoked_is_not_counted_in_its_line(shared: Project, desk: Desk, run: Run) -> None:
    shared.begin("in_line_gate", "7", "door")
    later = [shared.send("in_line_gate", "7", "door") for _ in range(3)]
    key = desk.objects.key_of("project.in_line_gate", "7")
    wait_for(lambda: len(desk.objects.get(key).waiters) == 3, 20, "all stand in line")
    assert run("revoke", later[1].id, "--yes").code == 0

    one = run("objects", "--task", "project.in_line_gate", "--object-id", "7", "--json").json
    (listed,) = run("objects", "--json").json["items"]

    assert one["waiters"] == [later[0].id, later[2].id]
    assert (one["in_line"], listed["in_line"]) == (2, 2)
    assert run("status", "--json").json["held_back"]["object"]["project.in_line_gate"] == 2
    shared.effects.open_gate("door")


def test_a_success_is_known_by_the_result_backend(shared: Project, run: Run) -> None:
    task = shared.send("work", 0.01)
    task.get(timeout=30)
    wait_until_settled(shared.redis, 20)

    shown = run("show", task.id)

    assert "SUCCESS" in shown.out
    assert "knows no task" not in shown.out
    view = run("show", task.id, "--json").json
    assert (view["state"], view["outcome"]) == ("ended", "SUCCESS")
    assert view["why"]["since"]
    ran = run("revoke", task.id, "--yes")
    assert ran.code == 1
    assert "SUCCESS" in ran.out
    assert "not known" not in ran.out
    # A result that is none is nobody's end.
    assert run("show", "4711", "--json").json["state"] == "absent"


def test_the_doctor_counts_what_it_prints(project: Project, run: Run) -> None:
    ran = run("doctor")

    found: list[Any] = json.loads(run("doctor", "--json").out)["findings"]
    infos = sum(one["severity"] == "info" for one in found)
    assert infos, "there is one for information"
    last = ran.out.splitlines()[-1]
    assert str(infos) in last
    assert "information" in last
