"""Claims of workers that do nothing more: what dead ones have left is recovered from them."""

from __future__ import annotations

from typing import Any

from celery_reliable.broker import WorkerUnacked
from celery_reliable.ledger import Ledger
from celery_reliable.ledger.answers.tasks import Claimed
from celery_reliable.model import Claim, ClaimRequest, TaskRef
from celery_reliable.recovery import BrokerView


def register(ledger: Ledger, worker: str, *, lease_ms: int = 60_000, **facts: Any) -> None:
    """Let a worker hold a lease, of which nothing else exists."""
    ledger.workers.register(worker, lease_ms=lease_ms, client_id=0, facts=facts)


def unacked_of(view: BrokerView, name: str = "unacked:one") -> WorkerUnacked:
    """Return an unacked hash at the broker as a worker has it."""
    return WorkerUnacked(name, view.channel.pool, view.channel.global_keyprefix)


def claimed(ledger: Ledger, task_id: str, token: str = "token", worker: str = "gone") -> Claim:
    """Claim a task's current publication for a worker that is registered."""
    record = ledger.find(task_id)
    assert record is not None
    request = ClaimRequest(
        TaskRef(task_id, record.name),
        epoch=record.epoch,
        generation=ledger.generation,
        worker=worker,
        token=token,
        pid=1,
    )
    answer = ledger.claim(request)
    assert isinstance(answer, Claimed)
    return Claim(task_id, answer.attempt, worker, token)
