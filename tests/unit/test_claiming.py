"""When a process may begin by the claim that its worker made early, without asking."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, states
from celery.worker import state

from celery_reliable import clock
from celery_reliable.app import reliable_of
from celery_reliable.attempt.claiming import _without_attempt, claimed_early
from celery_reliable.attempt.delivery import DELIVERY, EARLY
from celery_reliable.compat.notes import note
from celery_reliable.context import WorkerProcess
from celery_reliable.ledger.answers.tasks import NoLease
from celery_reliable.message import Stamp
from celery_reliable.model import Claim
from celery_reliable.worker.arrivals import Arrivals, Awaited
from celery_reliable.worker.consumer_step import ConsumerStep

LEASE_SECONDS = 10.0


@dataclass(eq=False)
class _Request:
    """A delivery, as far as its claim goes."""

    message: Any


@pytest.fixture
def worker() -> WorkerProcess:
    """A worker whose lease holds, in this process."""
    process = WorkerProcess("one@host")
    process.renewed(clock.now() + LEASE_SECONDS)
    return process


def early(worker: WorkerProcess, arrivals: Any = None, token: str = "token") -> Awaited:
    """A message that came and was claimed just now."""
    claim = Claim("id", 1, worker.id, token)
    step: Any = None
    return Awaited(token, worker.id, step, arrivals, claim=claim, came_at=clock.now())


def properties(awaited: Awaited) -> dict[str, Any]:
    """What the process that runs the task is told; nothing of it is more than JSON."""
    told: dict[str, Any] = json.loads(json.dumps({DELIVERY: awaited.token, EARLY: awaited.told}))
    return told


def died(worker: WorkerProcess) -> None:
    worker.lost()


def born_again(worker: WorkerProcess) -> None:
    worker.reborn()
    worker.renewed(clock.now() + LEASE_SECONDS)


def lapsed(worker: WorkerProcess) -> None:
    worker.renewed(clock.now() - 0.001)


def outlived(worker: WorkerProcess) -> None:
    # Neither this process nor its parent is the worker any more.
    worker.pid = next(pid for pid in range(2, 9) if pid not in (os.getpid(), os.getppid()))


@pytest.mark.parametrize("what", [died, born_again, lapsed, outlived])
def test_where_somebody_may_have_taken_it_the_ledger_is_asked(
    worker: WorkerProcess, what: Callable[[WorkerProcess], None]
) -> None:
    told = properties(early(worker))
    what(worker)
    assert claimed_early(worker, "id", told) is None


def test_nobody_has_begun_by_the_claim_of_what_is_dropped_with_the_connection(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the pool; what the pool has accepted is run."""

    def request(token: str) -> Any:
        message = SimpleNamespace()
        note(message, "early", early(worker, arrivals, token))
        return _Request(message=message)

    app = Celery("claiming", broker="redis://127.0.0.1:1/0", set_as_current=False)
    controller = SimpleNamespace()
    consumer: Any = SimpleNamespace(app=app, controller=controller)
    step: Any = SimpleNamespace(
        process=worker, reliable=reliable_of(app), shifts=None, is_connecting=False
    )
    arrivals = step.arrivals = Arrivals(consumer, step)
    note(controller, "step", step)
    waiting, running = request("waiting"), request("running")
    monkeypatch.setattr(state, "reserved_requests", {waiting, running})
    monkeypatch.setattr(state, "active_requests", {running})

    ConsumerStep(consumer).stop(consumer)

    assert arrivals.is_given_up("waiting")
    assert not arrivals.is_given_up("running")
    assert step.is_connecting


def test_what_a_worker_without_a_lease_was_given_is_not_acknowledged() -> None:
    delivery: Any = SimpleNamespace(
        task=SimpleNamespace(name="work"), id="id", request={}, stamp=Stamp()
    )

    ended = _without_attempt(delivery, NoLease())

    assert ended.info.state == states.REJECTED
    assert ended.info.retval.requeue
