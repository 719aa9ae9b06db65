"""The doors agree: on who is meant, on what is stopped, and on how many there are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.commands import Run
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.integration.letters import put


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
    for command in (["workers"], ["workers", "--long"], ["status"]):
        out = run(*command, project=soon).out
        assert "drained" in out.partition("worker ")[2].partition("\n1 worker")[0], out
    assert "its fan" in run("status", project=soon).out
    assert run("resume", "one", project=soon).code == 0
    soon.effects.open_gate("door")


@pytest.mark.full
def test_an_order_for_nobody_is_refused_unless_it_is_for_later(project: Project, run: Run) -> None:
    def orders() -> list[str]:
        return [one["target"] for one in run("orders", "--json").json["items"]]

    for order in (
        ("drain", "w2"),
        ("pause", "invoicse"),
        ("strike", "project.wrok"),
        ("strike", "project.plain_work"),
        ("strike", "project.plain_work", "--later"),
    ):
        ran = run(*order)
        assert (ran.code, ran.out) == (1, ""), ran
        assert order[1] in ran.err
        assert ("--later" in ran.err) != ("plain" in order[1])
    assert orders() == []
    for order in (
        ("drain", "w2", "--later"),
        ("pause", "invoicse", "--later"),
        ("pause", "celery"),
        # Some of those are plain.
        ("strike", "project.*"),
    ):
        assert run(*order).code == 0
    assert len(orders()) == 4


def test_a_filter_that_cannot_be_obeyed_is_refused(project: Project, run: Run) -> None:
    put(project, "one")
    project.send("work", 0, countdown=3600)

    for option, value in (
        ("--queue", "nosuch"),
        ("--newer-than", "1"),
        ("--older-than", "1h"),
        ("--object-id", "7"),
        ("--worker", "w1"),
    ):
        ran = run("dead-letters", "groups", option, value)
        assert (ran.code, ran.out) == (2, ""), ran
        assert option in ran.err
    assert "1 group of 1" in run("dead-letters", "groups", "--reason", "rejected").out
    for option, value in (("--reason", "rejected"), ("--exception", "Value*")):
        for state in ((), ("--state", "parked")):
            ran = run("tasks", option, value, *state)
            assert (ran.code, ran.out) == (2, ""), ran
            assert option in ran.err
    assert ids(run, "--state", "dead", "--reason", "rejected", project=project) == ["one"]


def test_a_success_is_known_by_the_result_backend(project: Project, run: Run) -> None:
    project.start_worker("one")
    task = project.send("work", 0.01)
    task.get(timeout=30)
    wait_until_settled(project.redis, 20)

    shown = run("show", task.id)

    assert "SUCCESS" in shown.out
    assert "knows no task" not in shown.out
    view = run("show", task.id, "--json").json
    assert (view["state"], view["outcome"]) == ("ended", "SUCCESS")
    assert view["why"]["since"]
    for command in (("revoke", "--yes"), ("move", "--workers", "w1")):
        ran = run(command[0], task.id, *command[1:])
        assert ran.code == 1
        assert "SUCCESS" in ran.out
        assert "not known" not in ran.out
    # A result that is none is nobody's end.
    assert run("show", "4711", "--json").json["state"] == "absent"


def test_the_doctor_counts_what_it_prints(project: Project, run: Run) -> None:
    ran = run("doctor", "--fail-level", "never")

    found: list[Any] = json.loads(run("doctor", "--json", "--fail-level", "never").out)["findings"]
    infos = sum(one["severity"] == "info" for one in found)
    assert infos, "there is one for information"
    last = ran.out.splitlines()[-1]
    assert str(infos) in last
    assert "information" in last
