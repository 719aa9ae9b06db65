"""Celery's events, and its signal, of tasks that processes of the pool take by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.conftest import Project
from tests.integration.monitoring import Monitor, monitoring
from tests.integration.shifts import in_shift, start, token_of, with_shifts
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")),
        reason="elsewhere than in the ledger nobody has a shift",
    ),
]

WATCHED = ("-E",)
#: What differs from run to run.
OWN = {"uuid", "root_id", "clock", "timestamp", "local_received", "runtime", "pid", "hostname"}
#: Celery's own; the package's come from other processes, beside them.
KINDS = {
    f"task-{end}"
    for end in (
        "received", "started", "succeeded", "failed", "retried", "rejected", "revoked", "cancelled"
    )
}  # fmt: skip
ENDS = {"works": "task-succeeded", "fails": "task-failed", "retries": "task-retried"}


@pytest.fixture
def pooled(project: Project) -> Project:
    """The project, whose workers have this pool."""
    return with_shifts(project)


@pytest.fixture
def monitor(project: Project) -> Iterator[Monitor]:
    """A receiver of events."""
    with monitoring(project.app) as found:
        yield found


def told(monitor: Monitor, task_id: str) -> list[dict[str, Any]]:
    """What it has heard of a task from Celery, in the order in which it came."""
    return [event for event in monitor.of(task_id) if event["type"] in KINDS]


def kinds(monitor: Monitor, task_id: str) -> list[str]:
    return [event["type"] for event in told(monitor, task_id)]


@dataclass
class Some:
    """Tasks that one process runs one after the other, and what waits at a gate behind them."""

    works: Any
    fails: Any
    retries: Any
    last: Any


def send_some(project: Project, gate: str) -> Some:
    return Some(
        works=project.send("work", 0),
        fails=project.send("failing"),
        # Its retry begins when the test is long over.
        retries=project.send("flaky", 1, 600),
        last=project.send("gate", gate),
    )


def in_one_shift(pooled: Project) -> Some:
    """Some of which it is certain that their process has taken all by itself."""
    for number in range(20):
        held, gate, _ = in_shift(pooled, f"held {number}")
        shift = token_of(pooled, held.id).rpartition(".")[0]
        tasks = send_some(pooled, f"last {number}")
        pooled.effects.open_gate(gate)
        pooled.effects.run_of(tasks.last.id)
        is_one = token_of(pooled, tasks.last.id).rpartition(".")[0] == shift
        pooled.effects.open_gate(f"last {number}")
        if is_one:
            return tasks
    raise AssertionError("each shift was over before")


def heard(monitor: Monitor, tasks: Some) -> dict[str, list[dict[str, Any]]]:
    """What a monitor hears of each, without what differs from run to run."""
    found = {}
    for name, end in ENDS.items():
        task_id = getattr(tasks, name).id
        wait_for(lambda i=task_id, e=end: e in monitor.kinds(i), 20, f"{end} of {name}")
        # What is retried is received anew, at any time.
        found[name] = [
            {key: value for key, value in event.items() if key not in OWN}
            for event in told(monitor, task_id)[:3]
        ]
    return found


def test_a_monitor_hears_of_a_shift_what_it_hears_of_prefork(
    pooled: Project, monitor: Monitor
) -> None:
    one = start(pooled, options=WATCHED)
    tasks = in_one_shift(pooled)
    of_shift = heard(monitor, tasks)
    assert {name: [event["type"] for event in found] for name, found in of_shift.items()} == {
        name: ["task-received", "task-started", end] for name, end in ENDS.items()
    }
    begun, *_, ended = told(monitor, tasks.works.id)
    assert (ended["hostname"], ended["pid"]) == (begun["hostname"], one.pid)
    assert begun["hostname"].startswith("one@")
    assert 0 <= ended["runtime"] <= ended["timestamp"] - begun["timestamp"]
    assert monitor.state.tasks[tasks.works.id].state == "SUCCESS"
    assert monitor.state.tasks[tasks.works.id].worker.hostname == begun["hostname"]
    one.stop()

    prefork = pooled.with_settings(celery={"worker_pool": "prefork"})
    prefork.start_worker("two", concurrency=1, options=WATCHED)
    tasks = send_some(prefork, "last")
    prefork.effects.open_gate("last")
    assert tasks.last.get(timeout=20) == "last"
    assert of_shift == heard(monitor, tasks)


def test_a_monitor_hears_what_runs_while_it_runs(pooled: Project, monitor: Monitor) -> None:
    start(pooled, options=WATCHED)
    result, gate, _ = in_shift(pooled)
    wait_for(lambda: "task-started" in monitor.kinds(result.id), 10, "it is told")
    assert not pooled.effects.finished(result.id)
    pooled.effects.open_gate(gate)
    # Nothing comes after it.
    wait_for(lambda: "task-succeeded" in monitor.kinds(result.id), 10, "its end is told")
    assert kinds(monitor, result.id) == ["task-received", "task-started", "task-succeeded"]
