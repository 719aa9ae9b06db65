"""What those who watch are told: each event by a signal, each end by an event of Celery's, and what
is off the straight way by a note.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from celery_reliable import events, signals
from celery_reliable.operations import Desk
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.commands import Run
from tests.integration.conftest import SOON, Project
from tests.integration.monitoring import Monitor, monitoring
from tests.integration.project.watching import TOLD, add_tasks, note
from tests.support.effects import Effects
from tests.support.telling import tellers_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

APP = "tests.integration.project.watching"
WATCHED = ("-E",)
FACTS = {"reason", "attempt", "losses", "exception"}


@pytest.fixture
def monitor(project: Project) -> Iterator[Monitor]:
    """A receiver of events."""
    with monitoring(project.app) as found:
        yield found


@dataclass
class Rows:
    """What the signals of an event have told."""

    event: events.Event[Any]
    rows: list[dict[str, Any]]

    @property
    def by_task(self) -> dict[str, dict[str, Any]]:
        """The last of each task."""
        return {row["task_id"]: row for row in self.rows}

    def lack(self) -> set[tuple[str, str]]:
        """Who tells of the event in the package, and has not told yet."""
        return tellers_of(self.event) - {tuple(row["teller"]) for row in self.rows}


Told = Callable[[events.Event[Any]], Rows]


@pytest.fixture
def told(effects: Effects) -> Told:
    """What the signal of an event has told until now."""

    def told(event: events.Event[Any]) -> Rows:
        rows = [json.loads(row) for row in effects.client.lrange(TOLD, 0, -1)]
        return Rows(event, [row for row in rows if row.pop("signal") == event.name])

    return told


def test_every_refusal_is_told(project: Project, told: Told, monitor: Monitor) -> None:
    """Before the body, after it, with its result, while its result waits, and when it settles."""
    # One server, so that a result is stored and settled in one step.
    project = project.with_settings(reliable={"REDIS_URL": project.redis.url()})
    add_tasks(project.app)
    project.start_worker("one", app=APP, concurrency=1, options=WATCHED)
    # Of which its process proves that it can settle with what it takes next.
    project.send("work", 0).get(timeout=20)
    names = ("", "_silently", "_with_hook", "_in_time", "_while_away", "_before")
    ids = {project.send(f"taken{name}", 0).id for name in names}
    wait_for(lambda: told(events.task_fenced).by_task.keys() == ids, 30, "all are told")
    fenced = told(events.task_fenced)
    assert all(row["attempt"] == 1 for row in fenced.rows)
    for task_id in ids:
        wait_for(lambda i=task_id: "task-fenced" in monitor.kinds(i), 10, "by an event too")
    assert os.environ.get("TESTS_APART") or not fenced.lack()


def test_each_event_that_has_a_signal_is_told(
    project: Project, told: Told, monitor: Monitor
) -> None:
    project = project.with_settings(reliable=SOON)
    add_tasks(project.app)
    # Of losses there are kinds that are not here; of the others there is a test each.
    # A burial is told by whoever has seen it; here not by all of them.
    others = {events.task_buried, events.task_lost, events.task_fenced}
    wanted = {one for one in events.DECLARED.values() if one.signal is not None} - others
    worker = project.start_worker("one", app=APP, options=WATCHED)
    held = project.send("locked_gate", "object", "gate")
    wait_for(lambda: project.effects.runs(held.id), 20, "it runs")
    skipped = project.send("locked_gate", "object", "gate")
    wait_for(lambda: skipped.id in told(events.task_skipped).by_task, 20, "it is skipped")
    project.effects.open_gate("gate")
    failing, unknown = project.send("failing"), project.app.send_task("project.nobody_knows")
    # That is told where the operator is.
    signals.dead_letter_replayed.connect(note)
    desk = DeadLetters(project.app)
    for dead in (failing, unknown):
        wait_for(lambda i=dead.id: i in told(events.task_buried).by_task, 20, "it is buried")
        desk.replay(dead.id)
    signals.dead_letter_replayed.disconnect(note)
    poison = project.send("poison", max_losses=0)
    wait_for(lambda: poison.id in told(events.task_buried).by_task, 20, "it is buried")
    cut = project.send("gate", "cut")
    beside = project.send("gate", "cut")
    for one in (cut, beside):
        wait_for(lambda i=one.id: project.effects.runs(i), 20, "it runs")
    worker.kill_group()
    heir = project.start_worker("two", app=APP, options=WATCHED)
    wait_for(lambda: told(events.worker_declared_dead).rows, 30, "the first is declared dead")
    wait_for(lambda: told(events.pass_finished).rows, 30, "passes are told")
    wait_for(lambda: cut.id in told(events.task_recovered).by_task, 30, "the cut one runs again")
    assert told(events.task_lost).by_task[cut.id]["cause"] == "worker_lost"
    project.effects.open_gate("cut")
    for event in wanted:
        assert not told(event).lack(), event.name

    # And by events of Celery's, of which a monitor makes no worker and no task that there is not.
    wait_for(lambda: "worker-declared" in [e["type"] for e in monitor.events], 10, "by an event")
    wait_for(lambda: "task-succeeded" in monitor.kinds(cut.id), 20, "the cut one ends")
    kinds = monitor.kinds(skipped.id)
    assert kinds.index("task-skipped") < kinds.index("task-succeeded")
    assert monitor.event(skipped.id, "task-skipped")["holder"] == held.id
    assert monitor.state.tasks[skipped.id].state == "SUCCESS"
    (declared,) = (one for one in monitor.events if one["type"] == "worker-declared")
    assert declared["owner"].startswith("one@")
    assert declared["cause"] in ("connection", "lapsed")
    workers = {name.partition("@")[0]: one for name, one in monitor.state.workers.items()}
    assert workers.keys() == {"one", "two"}
    assert (declared["hostname"], workers["two"].pid) == (workers["two"].hostname, heir.pid)
    assert monitor.state.tasks.keys() <= {
        one.id for one in (held, skipped, failing, unknown, poison, cut, beside)
    }

    # A burial that the death of a worker brings, and each by an event behind Celery's own.
    last = project.send("gate", "last", max_losses=0)
    wait_for(lambda: project.effects.runs(last.id), 20, "it runs")
    heir.kill_group()
    project.start_worker("three", app=APP, options=WATCHED)
    wait_for(lambda: last.id in told(events.task_buried).by_task, 30, "it is buried")
    buried = told(events.task_buried).by_task
    reasons = {failing: "failed", unknown: "unprocessable", poison: "lost", last: "lost"}
    assert {one.id: reason for one, reason in reasons.items()} == {
        task_id: row["reason"] for task_id, row in buried.items()
    }
    for task_id in (poison.id, last.id):
        wait_for(lambda i=task_id: "task-buried" in monitor.kinds(i), 10, "by an event too")
        event = monitor.event(task_id, "task-buried")
        assert {name: event[name] for name in FACTS} == {
            name: buried[task_id][name] for name in FACTS
        }
        assert monitor.kinds(task_id).count("task-failed") == 1
        assert monitor.state.tasks[task_id].state == "FAILURE"


def test_each_is_noted_once_and_what_goes_well_is_only_counted(
    project: Project, desk: Desk, run: Run
) -> None:
    project = project.with_settings(reliable={**SOON, "MAX_LOSSES": 1})
    worker = project.start_worker("one")
    for _ in range(5):
        project.send("work", 0).get(timeout=20)
    project.send("flaky", 2, 0).get(timeout=30)
    assert {one.kind for one in desk.happenings.page()} == {"worker_registered"}

    # Its process dies, and it runs again; another task fails; another worker dies.
    killed = project.send("gate", "door")
    worker.kill_child(project.effects.run_of(killed.id).pid)
    project.start_worker("two").kill_group()
    project.effects.run_of(killed.id, 2)
    project.effects.open_gate("door")
    killed.get(timeout=20)
    failed = project.send("failing", "argument-7")
    wait_for(lambda: desk.ledger.dead_letter(failed.id), 20, "a dead letter")
    desk.letters.discard(failed.id, by="somebody")
    wait_for(
        lambda: any(one.kind == "worker_declared_dead" for one in desk.happenings.page()),
        30,
        "a death is noticed",
    )
    worker.stop()

    found = desk.happenings.page()
    about = {
        (one.kind, one.task_id or str(one.about.get("worker")).partition("@")[0])
        for one in found
        if one.kind != "pass_finished"
    }
    assert about == {
        ("worker_registered", "one"),
        ("task_lost", killed.id),
        ("worker_registered", "two"),
        ("task_recovered", killed.id),
        ("task_buried", failed.id),
        ("dead_letter_discarded", failed.id),
        ("worker_declared_dead", "two"),
        ("worker_left", "one"),
    }
    (lost,) = (one for one in found if one.kind == "task_lost")
    assert lost.name == "project.gate"
    assert lost.sentence.startswith("attempt 1, losses 1, cause child_lost, worker one@")
    assert "argument-7" not in str(found)
    assert [one.at for one in found] == sorted(one.at for one in found if one.at)
