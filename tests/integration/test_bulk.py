"""Many dead letters at once: found, grouped, replayed and discarded, and who did it."""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import Reason
from celery_reliable.operations.dead_letters import CannotReplay
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.listing import Filter, Kind
from tests.integration.commands import Run, start_reliable
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.waiting import wait_for


def bury(project: Project, task_id: str, **facts: Any) -> None:
    facts = {"reason": Reason.FAILED, "exception": "ValueError: no", **facts}
    put(project, task_id, **facts)
    # Only that is meant which was buried before the call, by a clock of milliseconds.
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


def test_pages_hold_each_letter_once_whatever_goes_meanwhile(project: Project, desk: Desk) -> None:
    for number in range(25):
        bury(project, f"task-{number:02}")
    found: list[str] = []
    cursor = ""
    while True:
        page = desk.tasks.page(state=Kind.DEAD, cursor=cursor, limit=4)
        found += [letter.task_id for letter in page.items]
        if page.is_last:
            break
        cursor = page.cursor
        # Those that were shown go, and others come.
        desk.letters.discard(page.items[-1].task_id)
        bury(project, f"new-{len(found)}")

    assert found == [f"task-{number:02}" for number in reversed(range(25))]


def test_a_filter_finds_what_fits(project: Project, desk: Desk) -> None:
    several(project)
    values = {"value-0", "value-1", "value-2"}
    cases: list[tuple[Filter, set[str]]] = [
        (Filter(), {*values, "key-0", "unread"}),
        (Filter(task="project.*", exception="KeyError"), {"key-0"}),
        (Filter(queue="other"), {"key-0"}),
        (Filter(reason="unprocessable"), {"unread"}),
        (Filter(exception="Value*"), values),
        (Filter(older_than_seconds=60), set()),
        (Filter(newer_than_seconds=600, exception="Key*"), {"key-0"}),
    ]
    for wanted, expected in cases:
        page = desk.tasks.page(wanted, state=Kind.DEAD)
        assert {letter.task_id for letter in page.items} == expected, wanted
        # What cannot fit by the index of groups is not looked at.
        assert page.looked_at == 5 or wanted.exception or wanted.reason
        assert desk.bulk.replay(
            by="me", filter_=wanted, all_=wanted == Filter(), dry_run=True
        ).done == len(expected)


def test_only_those_that_fit_are_replayed_and_each_act_is_noted(
    project: Project, desk: Desk
) -> None:
    several(project)

    done = desk.bulk.replay(by="me@here", filter_=Filter(exception="ValueError"), rate=None)

    assert (done.done, done.failed, done.gone, done.is_whole) == (3, 0, 0, True)
    assert left(desk) == {"key-0", "unread"}
    record = desk.ledger.find("value-0")
    assert record is not None
    # The counters begin anew.
    assert (record.state.value, record.losses) == ("queued", 0)
    client = project.redis.client()
    assert client.llen("celery") == 3
    assert [one.count for one in desk.letter_groups.all().groups] == [1, 1]
    # When it begins, and when it ends.
    end, begin = desk.audit()
    assert (begin.phase, begin.act, begin.by, begin.done) == ("begin", "replay", "me@here", 0)
    assert begin.about["filter"] == {"exception": "ValueError"}
    assert (end.phase, end.run, end.done) == ("end", begin.run, 3)
    assert begin.at is not None
    assert end.at is not None
    now_ms = desk.ledger.workers.time_ms()
    assert begin.at <= end.at <= datetime.fromtimestamp(now_ms / 1000, timezone.utc)

    # Into another queue, some of them; and into one that is none.
    done = desk.bulk.replay(by="me", filter_=Filter(exception="KeyError"), limit=1, to_queue="slow")
    assert done.done == 1
    assert desk.audit()[0].about["limit"] == 1
    for number in range(2):
        bury(project, f"task-{number}")
    wanted = Filter(exception="ValueError")
    done = desk.bulk.replay(by="me", filter_=wanted, limit=1, to_queue="slow")
    assert (done.done, done.is_whole) == (1, False)
    assert (client.llen("slow"), client.llen("celery")) == (2, 3)
    project.app.conf.task_create_missing_queues = False
    project.app.amqp.queues.create_missing = False
    with pytest.raises(CannotReplay, match="nowhere"):
        desk.bulk.replay(by="me", all_=True, to_queue="nowhere")
    assert left(desk) == {"unread", "task-1"}


@pytest.mark.full
def test_a_replay_that_is_killed_goes_on_and_each_runs_once(
    project: Project, desk: Desk, run: Run, tmp_path: Path
) -> None:
    count = 600
    ids = [f"task-{number:04}" for number in range(count)]
    for task_id in ids:
        bury(project, task_id)
    project.start_worker("one")
    words = ("dead-letters", "replay", "--all", "--yes", "--rate", "200")
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start_reliable(project, tmp_path, *words, **nowhere)
    try:
        wait_for(lambda: desk.letters.count() < count - 100, 60, "some of them replayed")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    n_left = desk.letters.count()
    assert 0 < n_left < count - 100

    again = run("dead-letters", "replay", "--all", "--yes", "--rate", "100000", "--json").json

    assert (again["done"], again["failed"], again["is_whole"]) == (n_left, 0, True)
    wait_for(lambda: len(project.effects.runs()) >= count, 120, "all of them")
    wait_for(lambda: not project.app.backend.client.keys("{reliable:0}:task:*"), 60, "the end")
    assert Counter(one.task_id for one in project.effects.runs()) == dict.fromkeys(ids, 1)
    assert desk.letters.count() == 0
    phases = Counter(entry.phase for entry in desk.audit())
    # The one that was killed has no end.
    assert phases == {"begin": 2, "end": 1}


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
    for name in ("one", "two"):
        put(project, name)
    for words in (
        "replay",
        "discard --yes",
        "replay one --all",
        "replay one --task x",
        "replay --all --rate 0",
        "list --older-than soon",
    ):
        assert run("dead-letters", *words.split()).code == 2, words
    assert left(desk) == {"one", "two"}


def test_who_means_many_is_asked_first_and_told_how_many(
    project: Project, desk: Desk, run: Run
) -> None:
    several(project)

    asked = run("dead-letters", "discard", "--reason", "failed", answer="n\n")
    assert (asked.code, len(left(desk))) == (1, 5)
    assert "Discard 4 dead letters for good?" in asked.err

    asked = run("dead-letters", "replay", "--all")
    assert (asked.code, len(left(desk))) == (1, 5)
    assert "Replay 5 dead letters? [y/N]" in asked.err

    # Nobody is asked about nothing.
    nothing = run("dead-letters", "discard", "--task", "no such")
    assert (nothing.code, nothing.out, nothing.err) == (0, "0 dead letters discarded\n", "")

    done = run("dead-letters", "discard", "value-0", "key-0", "nobody", "--yes")
    assert done.out == "2 dead letters discarded\nGone already: 1\n"
    assert left(desk) == {"value-1", "value-2", "unread"}
    done = run("dead-letters", "discard", "unread", answer="y\n")
    assert (done.out, len(left(desk))) == ("1 dead letter discarded\n", 2)
    assert run("dead-letters", "replay", "--all", answer="y\n").code == 0
    assert left(desk) == set()
