"""Many dead letters at once: found, grouped, replayed and discarded, and who did it."""

from __future__ import annotations

import re

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.message.envelope import Envelope
from celery_reliable.model import Reason
from celery_reliable.operations.bulk import Chosen
from celery_reliable.operations.dead_letters import CannotReplay
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.filters import Filter
from celery_reliable.operations.walks import Kind
from tests.integration.commands import Run
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.waiting import wait_for


def bury(
    project: Project,
    task_id: str,
    *,
    name: str = "project.work",
    reason: Reason = Reason.FAILED,
    exception: str = "ValueError: no",
    queue: str = "celery",
) -> None:
    envelope = Envelope(
        b"[[0], {}, {}]",
        "application/json",
        "utf-8",
        {"id": task_id, "task": name, "lang": "py", "root_id": task_id},
        {"correlation_id": task_id},
        "",
        queue,
    )
    reliable_of(project.app).ledger.bury_message(
        task_id,
        reason,
        exception=exception,
        traceback="",
        message=envelope.to_text(),
        name=name,
    )
    # Chosen is what was buried before the call, by a clock of milliseconds.
    workers = reliable_of(project.app).ledger.workers
    buried_ms = workers.time_ms()
    wait_for(lambda: workers.time_ms() > buried_ms, 5, "the next millisecond")


def several(project: Project) -> None:
    for number in range(3):
        bury(project, f"value-{number}")
    bury(project, "key-0", exception="KeyError: 'x'", queue="other")
    bury(project, "unread", reason=Reason.UNPROCESSABLE, exception="NotRegistered: y", name="y")


def left(desk: Desk) -> set[str]:
    return {letter.task_id for letter in desk.letters.list(10_000)}


def test_a_filter_finds_what_fits(project: Project, desk: Desk) -> None:
    several(project)
    values = {"value-0", "value-1", "value-2"}
    cases: list[tuple[Filter, set[str]]] = [
        (Filter(), {*values, "key-0", "unread"}),
        (Filter(task="project.*", exception="KeyError"), {"key-0"}),
        (Filter(queue="other"), {"key-0"}),
        (Filter(reason="unprocessable"), {"unread"}),
        (Filter(text="VALUE-"), values),
        (Filter(older_than_seconds=60), set()),
        (Filter(newer_than_seconds=600, text="key"), {"key-0"}),
    ]
    for wanted, expected in cases:
        page = desk.tasks.page(wanted, kind=Kind.DEAD)
        assert {letter.task_id for letter in page.items} == expected, wanted
        # What cannot fit by the index of groups is not looked at.
        assert page.looked_at == 5 or wanted.exception or wanted.reason
        assert desk.bulk.count(Chosen(wanted=wanted)).done == len(expected), wanted


def test_another_queue_a_limit_and_a_queue_that_is_none(project: Project, desk: Desk) -> None:
    for number in range(4):
        bury(project, f"task-{number}")

    done = desk.bulk.replay(Chosen(), by="me", rate=None, limit=3, to_queue="slow")

    assert (done.done, done.is_whole) == (3, False)
    assert left(desk) == {"task-3"}
    client = project.redis.client()
    assert (client.llen("slow"), client.llen("celery")) == (3, 0)
    project.app.conf.task_create_missing_queues = False
    project.app.amqp.queues.create_missing = False
    with pytest.raises(CannotReplay, match="nowhere"):
        desk.bulk.replay(Chosen(), by="me", to_queue="nowhere")
    assert left(desk) == {"task-3"}


def test_from_the_groups_to_the_replay_of_one_at_the_command_line(
    project: Project, desk: Desk, run: Run
) -> None:
    several(project)
    table = run("dead-letters", "groups")
    assert (table.code, table.err) == (0, "")
    assert max(map(len, table.out.splitlines())) <= 80
    assert "    exception: ValueError" in table.out
    assert table.out.endswith("3 groups of 5 dead letters\n")
    (largest, *_) = run("dead-letters", "groups", "--json").json["groups"]
    assert (largest["count"], largest["exception"]) == (3, "ValueError")

    told = run("dead-letters", "replay", "--group", largest["group"], "--dry-run")
    assert told.out == "3 dead letters would be replayed\n"
    assert run("dead-letters", "replay", "--group", largest["group"]).out == (
        "3 dead letters replayed\n"
    )

    assert project.redis.client().llen("celery") == 3
    listed = run("dead-letters", "list", "--exception", "Key*", "--json").json["items"]
    assert [one["task_id"] for one in listed] == ["key-0"]
    page = run("dead-letters", "list", "--limit", "1", "--json").json
    assert page["cursor"]
    assert not page["is_last"]
    page |= run("dead-letters", "list", "--limit", "9", "--cursor", page["cursor"], "--json").json
    assert (len(page["items"]), page["is_last"]) == (1, True)
    audit = run("audit")
    assert audit.code == 0
    assert max(map(len, audit.out.splitlines())) <= 80
    assert re.search(r"(?m)  replay  end +3$", audit.out)
    assert [one["done"] for one in run("audit", "--json").json["items"]] == [3, 0]


def test_what_is_not_said_is_not_done(project: Project, desk: Desk, run: Run) -> None:
    put(project, "one")
    put(project, "two")

    for words in (
        "replay",
        "discard --yes",
        "replay one --all",
        "replay --all --rate 0",
        "replay one two --args []",
        "list --older-than soon",
    ):
        assert run("dead-letters", *words.split()).code == 2, words

    assert left(desk) == {"one", "two"}


def test_discarding_many_asks_first_and_says_how_many(
    project: Project, desk: Desk, run: Run
) -> None:
    several(project)

    asked = run("dead-letters", "discard", "--reason", "failed", answer="n\n")
    assert (asked.code, len(left(desk))) == (1, 5)
    assert "Discard 4 dead letters for good?" in asked.err

    # Nobody is asked about nothing.
    nothing = run("dead-letters", "discard", "--text", "no such")
    assert (nothing.code, nothing.out, nothing.err) == (0, "0 dead letters discarded\n", "")

    done = run("dead-letters", "discard", "value-0", "key-0", "nobody", "--yes")
    assert done.out == "2 dead letters discarded\nGone already: 1\n"
    assert left(desk) == {"value-1", "value-2", "unread"}
