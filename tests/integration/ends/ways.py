"""How a task may end, what is left of it then, and that this was its last end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import celery

from celery_reliable.app import reliable_of
from celery_reliable.model import State
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import LEDGER, leases, passes_finish
from tests.support.effects import Effects, Run
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


def ticking_run_of(effects: Effects, task_id: str) -> Run:
    """The first run, once it has given a sign of life from within its body."""
    effects.run_of(task_id)

    def ticking() -> Run | None:
        first = effects.runs(task_id)[0]
        return first if first.alive_at > first.started_at else None

    return wait_for(ticking, 5, "a sign of life")  # type: ignore[return-value]


@dataclass(frozen=True)
class End:
    """How a task ended: what is left of it, the state that Celery stored, how often it ran.

    `left` is "" for nothing, else the reason of its dead letter.
    """

    left: str
    state: str
    runs: int = 1
    losses: int = 0


@dataclass(frozen=True)
class Case:
    """A task that is sent, and how it has to end."""

    end: End
    task: str = "ending"
    options: dict[str, Any] = field(default_factory=dict)
    needs_process: bool = False


SILENT = {"ignore_result": True}
GONE = ""
ENDS = {
    "finish": Case(End(GONE, "SUCCESS")),
    "finish a step first": Case(End(GONE, "SUCCESS")),
    "ignore": Case(End(GONE, "PENDING")),
    "ignore with a state": Case(End(GONE, "DONE_BY_HAND")),
    # Celery 5.6 stores nothing for it.
    "reject": Case(End("rejected", "FAILURE" if celery.VERSION >= (5, 7) else "PENDING")),
    "reject and requeue": Case(End("lost", "FAILURE", 2, 2)),
    "fail": Case(End("failed", "FAILURE")),
    "retry": Case(End("failed", "FAILURE", 3)),
    "retry with an error": Case(End("failed", "FAILURE", 2)),
    "Retry by hand": Case(End("lost", "FAILURE", 2, 2)),
    "retry, and publish nothing": Case(End("lost", "FAILURE", 2, 2), "unpublished"),
    "replace, and publish nothing": Case(End("lost", "FAILURE", 2, 2), "unpublished"),
    "retry, and publish another id": Case(End(GONE, "RETRY"), "renamed"),
    "autoretry": Case(End("failed", "FAILURE", 3), "autoretried_always"),
    "sleep": Case(End("time_limit", "FAILURE"), options={"time_limit": 1}, needs_process=True),
    "sleep too long": Case(
        End("failed", "FAILURE"), options={"soft_time_limit": 1}, needs_process=True
    ),
    "catch the soft limit": Case(
        End(GONE, "SUCCESS"), options={"soft_time_limit": 1}, needs_process=True
    ),
    "sys.exit": Case(End("lost", "FAILURE", 2, 2)),
    "sys.exit with a text": Case(End("lost", "FAILURE", 2, 2)),
    "KeyboardInterrupt": Case(End("lost", "FAILURE", 2, 2)),
    "MemoryError": Case(End("failed", "FAILURE")),
    "RecursionError": Case(End("failed", "FAILURE")),
    "GeneratorExit": Case(End("lost", "FAILURE", 2, 2)),
    "os._exit": Case(End("lost", "FAILURE", 2, 2), needs_process=True),
    "cancelled": Case(End("lost", "FAILURE", 2, 2)),
    "unserialisable": Case(End("failed", "FAILURE")),
    "unserialisable, ignored": Case(End(GONE, "PENDING"), options=SILENT),
    "unpicklable": Case(End("failed", "FAILURE")),
    "fail, ignored": Case(End("failed", "PENDING"), options=SILENT),
    "once killed, ignored": Case(End(GONE, "PENDING", 2, 0), options=SILENT, needs_process=True),
    "os._exit, ignored": Case(End("lost", "PENDING", 2, 2), options=SILENT, needs_process=True),
}


def end_of(project: Project, task_id: str) -> End | None:
    """How a task has ended; None as long as it has not."""
    record = reliable_of(project.app).ledger.find(task_id)
    state, runs = project.app.AsyncResult(task_id).state, len(project.effects.runs(task_id))
    if record is None:
        return End(GONE, state, runs) if runs or state == "REVOKED" else None
    if record.state is not State.DEAD:
        return None
    letter = DeadLetters(project.app).get(task_id)
    return None if letter.is_owed else End(letter.reason.value, state, runs, letter.losses)


def wait_until_only_ends_are_left(redis_server: RedisServer, dead: int) -> None:
    """Wait until nobody runs, holds, waits for or has to look at any task."""
    client = redis_server.client()
    for key in ("claims:*", "lock:*", "due"):
        wait_for(lambda k=key: not client.keys(LEDGER + k), 15, f"nothing of {key}")
    wait_for(lambda: not client.keys("unacked*"), 15, "every message acknowledged")
    assert client.llen("celery") == 0
    assert len(client.keys(LEDGER + "task:*")) == client.zcard(LEDGER + "dead") == dead


def wait_for_ends(project: Project, expected: dict[str, End], seconds: float = 40) -> None:
    """Wait until each of these tasks has ended, and compare how."""
    for task_id, end in expected.items():
        wait_for(lambda i=task_id: end_of(project, i), seconds, f"{end} of {task_id}")
    assert {task_id: end_of(project, task_id) for task_id in expected} == expected


def assert_none_comes_back(project: Project, worker: Worker, ends: dict[str, End]) -> None:
    """None of these ends is another one after the end of the worker that has seen them."""
    dead = sum(end.left != GONE for end in ends.values())
    if worker.is_running:
        worker.kill_group()
    project.start_worker("after")
    wait_for(lambda: len(leases(project.redis)) == 1, 15, "the dead worker is forgotten")
    passes_finish(project.redis, 2, 15)
    assert project.send("work", 0.01).get(timeout=15) == "worked"
    wait_until_only_ends_are_left(project.redis, dead)
    assert {task_id: end_of(project, task_id) for task_id in ends} == ends
