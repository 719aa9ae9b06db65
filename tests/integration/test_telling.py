"""What those who watch are told: every burial by a signal, and every end by a Celery event."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from celery.events.state import State

from celery_reliable.deadletters import DeadLetters
from celery_reliable.model import DeadLetter
from tests.integration.conftest import Project, Start
from tests.integration.foreign import element
from tests.support.effects import Effects
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

APP = "tests.integration.project.watching"
#: Where that project writes what its signals tell.
TOLD = "told"
WATCHED = ("-E",)
FACTS = {"reason", "attempt", "losses", "exception"}


def letters(project: Project) -> list[DeadLetter]:
    """The dead letters that there are."""
    with DeadLetters(project.app) as found:
        return found.list(limit=100)


@dataclass
class Monitor:
    """What a monitor such as Flower hears, and makes of it."""

    state: State = field(default_factory=State)
    events: list[dict[str, Any]] = field(default_factory=list)

    def hear(self, event: dict[str, Any]) -> None:
        # The state takes events to pieces.
        self.events.append(dict(event))
        self.state.event(event)

    def kinds(self, task_id: str) -> list[str]:
        """The kinds of a task's events, in the order in which they came."""
        return [one["type"] for one in list(self.events) if one.get("uuid") == task_id]

    def event(self, task_id: str, kind: str) -> Mapping[str, Any]:
        return next(
            one for one in self.events if one.get("uuid") == task_id and one["type"] == kind
        )


@pytest.fixture
def monitor(project: Project) -> Iterator[Monitor]:
    """A receiver of events, in a thread with a connection of its own."""
    found, is_over = Monitor(), threading.Event()
    connection = project.app.connection_for_read()
    receiver = project.app.events.Receiver(connection, handlers={"*": found.hear})

    def consume() -> None:
        with receiver.consumer_context(wakeup=False) as (own, _, _):
            is_ready.set()
            while not is_over.is_set():
                try:
                    own.drain_events(timeout=0.2)
                except TimeoutError:
                    continue

    is_ready = threading.Event()
    thread = threading.Thread(target=consume)
    thread.start()
    assert is_ready.wait(10)
    yield found
    is_over.set()
    thread.join(10)
    connection.close()


@pytest.fixture
def told(effects: Effects) -> Callable[[str], dict[str, dict[str, Any]]]:
    """What a signal has told of each task."""

    def told(name: str) -> dict[str, dict[str, Any]]:
        rows = [json.loads(row) for row in effects.client.lrange(TOLD, 0, -1)]
        return {row.pop("task_id"): row for row in rows if row.pop("signal") == name}

    return told


def test_every_burial_is_told(
    project: Project,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
    monitor: Monitor,
    told: Callable[[str], dict[str, dict[str, Any]]],
) -> None:
    project = project.with_settings(
        reliable={"MAX_LOSSES": 0}, celery={"task_acks_late": True, "task_track_started": True}
    )
    reasons = {}

    # Two workers die: one with a task of ours, and before it one with a task of another base.
    for name, task in (("zero", "plain_gate"), ("one", "gate")):
        worker = start_worker(name, project=project, app=APP, options=WATCHED)
        held = project.send(task, "gate")
        reasons[held.id] = "lost"
        wait_for(lambda held=held: effects.runs(held.id), 20, "it runs")
        others = reasons.keys() - {held.id}
        wait_for(
            lambda others=others: all("task-buried" in monitor.kinds(one) for one in others),
            30,
            "the other is buried, and that is told",
        )
        worker.kill_group()

    start_worker("two", project=project, app=APP, options=WATCHED)
    reasons[project.send("poison").id] = "lost"
    reasons[project.send("failing").id] = "failed"
    limited = project.send("gate", "gate", time_limit=1)
    reasons[limited.id] = "time_limit"
    for requeue, reason in ((False, "rejected"), (True, "lost")):
        task_id = f"send-back-{requeue}"
        project.app.send_task("project.send_back", (requeue,), task_id=task_id)
        reasons[task_id] = reason
    for what, headers in (
        ("unknown", {"task": "project.nowhere", "id": "unknown"}),
        ("invalid", {"id": "invalid", "eta": "when it suits"}),
    ):
        redis_server.client().lpush("celery", element(headers=headers))
        reasons[what] = "unprocessable"
    redis_server.client().lpush("celery", element(b"\x00{", headers={"id": "undecodable"}))
    reasons["undecodable"] = "unprocessable"
    redis_server.client().lpush("celery", b"no message of kombu's")

    wait_for(lambda: not reasons.keys() - told("task_buried").keys(), 60, "all burials are told")
    wait_for(lambda: told("task_buried").keys() - reasons.keys(), 60, "the unreadable one too")
    buried = told("task_buried")
    (unreadable,) = buried.keys() - reasons.keys()
    reasons[unreadable] = "unprocessable"
    assert {task_id: row["reason"] for task_id, row in buried.items()} == reasons
    assert all(row.keys() == FACTS | {"sender"} for row in buried.values())
    assert all(row["exception"] for row in buried.values())
    assert {letter.task_id for letter in letters(project)} == buried.keys()

    # And each by an event, after one of Celery's that says how it ended.
    for task_id, row in buried.items():
        wait_for(lambda i=task_id: "task-buried" in monitor.kinds(i), 10, f"{task_id} is told")
        event = monitor.event(task_id, "task-buried")
        assert {name: event[name] for name in FACTS} == {name: row[name] for name in FACTS}
        failed = monitor.kinds(task_id).count("task-failed")
        # Celery itself tells of a time limit twice.
        assert failed == (2 if row["reason"] == "time_limit" else 1), monitor.kinds(task_id)
        assert monitor.state.tasks[task_id].state == "FAILURE", task_id
    # By no name but those of workers: a monitor would list it as another.
    assert {name.partition("@")[0] for name in monitor.state.workers} == {"zero", "one", "two"}


def test_a_recovery_is_told_on_its_way(
    project: Project, start_worker: Start, effects: Effects, monitor: Monitor
) -> None:
    """By the worker that lost its process, and by the sweeper where a whole worker is gone."""
    one = start_worker("one", project=project, app=APP, options=WATCHED)
    killed = project.send("poison_times", 1)
    assert killed.get(timeout=30) == "run 2"
    held = project.send("gate", "gate")
    effects.run_of(held.id)
    one.kill_group()
    start_worker("two", project=project, app=APP, options=WATCHED)
    wait_for(lambda: len(effects.runs(held.id)) == 2, 30, "it runs again")
    wait_for(lambda: "task-recovered" in monitor.kinds(held.id), 10, "that is told")
    assert monitor.state.tasks[held.id].state == "RECOVERED"
    effects.open_gate("gate")
    assert held.get(timeout=20) == "gate"

    for result, cause in ((killed, "child_lost"), (held, "worker_lost")):
        wait_for(lambda r=result: "task-succeeded" in monitor.kinds(r.id), 10, "its end is told")
        kinds = [k for k in monitor.kinds(result.id) if k in ("task-lost", "task-recovered")]
        assert kinds == ["task-lost", "task-recovered"]
        lost = monitor.event(result.id, "task-lost")
        assert (lost["attempt"], lost["losses"], lost["cause"]) == (1, 1, cause)
        assert lost["is_counted"]
        assert lost["owner"].startswith("one@")
        recovered = monitor.event(result.id, "task-recovered")
        assert (recovered["attempt"], recovered["losses"]) == (2, 1)
        assert monitor.state.tasks[result.id].state == "SUCCESS"


@pytest.mark.parametrize("is_on", [False, True])
def test_a_monitor_switches_events_on_and_off(
    project: Project,
    start_worker: Start,
    monitor: Monitor,
    told: Callable[[str], dict[str, dict[str, Any]]],
    is_on: bool,
) -> None:
    project = project.with_settings(reliable={"MAX_LOSSES": 0})
    start_worker("one", project=project, app=APP)
    control = project.app.control
    assert control.enable_events(reply=True, timeout=10)
    if not is_on:
        assert control.disable_events(reply=True, timeout=10)

    def is_heard() -> bool:
        """Whether the processes of the pool have heard of it, which tell of a failure."""
        probe = project.send("failing")
        wait_for(lambda: told("task_buried").get(probe.id), 20, "it is buried")
        mark(monitor, project)
        return ("task-buried" in monitor.kinds(probe.id)) is is_on

    wait_for(is_heard, 20, "events are switched")
    poison = project.send("poison")
    wait_for(lambda: told("task_buried").get(poison.id), 20, "it is buried")
    if is_on:
        wait_for(lambda: "task-buried" in monitor.kinds(poison.id), 10, "it is told")
    # What the main process sends, it sends a moment later.
    project.send("work", 0).get(timeout=10)
    mark(monitor, project)
    own = [k for k in monitor.kinds(poison.id) if k in ("task-lost", "task-failed", "task-buried")]
    assert own == (["task-lost", "task-failed", "task-buried"] if is_on else [])


def mark(monitor: Monitor, project: Project) -> None:
    """Wait until all is heard that was sent up to now."""
    name = f"worker-mark{len(monitor.events)}"
    with project.app.events.default_dispatcher() as dispatcher:
        dispatcher.send(name)
    wait_for(lambda: name in [one["type"] for one in monitor.events], 10, "a mark")
