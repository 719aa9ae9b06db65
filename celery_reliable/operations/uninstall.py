"""Giving everything back to the shared world, before the package is uninstalled.

What workers held in unacked hashes of their own, and what waits, would otherwise be seen by
workers with the package alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import AS_IT_IS, Resent, answers
from celery_reliable.message import Envelope, is_named
from celery_reliable.model import Due, Record, State
from celery_reliable.operations.desk import Desk
from celery_reliable.publishing import at_home, resend
from celery_reliable.recovery import MOST_BYTES, empty_own_queue, is_over

__all__ = ["Released", "release"]

_BATCH, _ALL = 200, 2**31


@dataclass
class Released:
    """What was given back.  Counts."""

    workers: int = 0
    attempts: int = 0
    messages: int = 0
    waiting: int = 0
    sent: int = 0


def release(app: Celery) -> Released:
    """Give back what only workers with the package can read, before it is uninstalled.

    Messages of stopped workers return to their queues.  Parked tasks are sent, and keep their ETA.
    A task that names workers goes to its ordinary queue.

    Raises ReliableError while a worker with the package is alive: stop it first.  May be repeated.
    Records and dead letters stay, so that workers with the package can take over again.
    """
    done = Released()
    with Desk(app, patience_seconds=5.0) as desk:
        ledger, broker = desk.ledger, desk.broker
        leases, now_ms = ledger.workers.leases(), ledger.workers.time_ms()
        alive = [one.worker for one in leases if not one.is_dead and one.until_ms > now_ms]
        if alive:
            raise ReliableError(
                f"{len(alive)} worker(s) with celery_reliable are alive: {', '.join(alive)}. What "
                "they hold is theirs. Stop them, wait until their leases have run out, and "
                "release again."
            )
        for lease in leases:
            for claim, _ in ledger.workers.claims(lease.worker).values():
                due_in_ms = reliable_of(app).config.queued_ms
                answer = ledger.release(claim, due_in_ms=due_in_ms, is_unsent=not broker.is_redis)
                done.attempts += isinstance(answer, answers.Queued)
        if broker.is_redis:
            done.messages += _empty_unacked(desk) + broker.bring_back_from_inboxes()
            _empty_own_queues(desk)
        for lease in leases:
            done.workers += ledger.workers.deregister(lease.worker, in_unacked=0)
        # All of them first: sending moves them within the index.
        dues = [Due(id_, str(ms)) for id_, ms in ledger.due_after(None, _ALL)]
        records = ledger.find_in_groups([due.task_id for due in dues], most_bytes=MOST_BYTES)
        for due, found in zip(dues, records, strict=True):
            if found.record and found.record.is_to_run and _is_sent(desk, due, found.record):
                is_waiting = found.record.state is State.WAITING
                done.waiting += is_waiting
                done.sent += not is_waiting
    return done


def _empty_unacked(desk: Desk) -> int:
    """Give back what workers were delivered, and return how many messages that were."""
    given_back = 0
    for name in desk.broker.unacked_names():
        unacked = desk.broker.unacked(name)
        # The newest first, as each goes in front of the others.
        entries = sorted(unacked.heads(), key=lambda entry: entry.filed_ms, reverse=True)
        ids = [entry.task_id for entry in entries]
        known = desk.ledger.find_in_groups(ids, most_bytes=MOST_BYTES)
        for entry, found in zip(entries, known, strict=True):
            if is_over(desk.ledger, entry, found.record):
                unacked.discard(entry.tag)
            else:
                given_back += unacked.give_back(desk.broker.channel, entry.tag, is_last=False)
        unacked.strike_off(reliable_of(desk.app).config.namespace)
    desk.broker.forget()
    return given_back


def _empty_own_queues(desk: Desk) -> None:
    """Take from the queues of single workers what was sent there by its names: no worker without
    the package consumes them.
    """
    for queue, _ in desk.ledger.named.queues():
        most, is_more = _BATCH, True
        while is_more:
            done = empty_own_queue(desk.app, desk.ledger, desk.broker, queue, most)
            is_more = done.looked_at >= most
            # If all of these are somebody else's, ours may be behind them.
            most *= 1 if done.taken else 2


def _is_sent(desk: Desk, due: Due, record: Record) -> bool:
    """Send a task that may be in no queue; return whether it was sent."""
    message, ledger = AS_IT_IS, desk.ledger
    # What was sent to a worker by its name, or waits for one, goes to its ordinary queue.
    home = at_home(Envelope.from_text(record.message)) if is_named(record.message) else None
    if home is not None:
        # What the worker before may still be delivered is stale, should one with the package
        # start.
        sent, epoch = home.published_anew(record.epoch, ledger.generation)
        message = Resent(sent.to_text(), record.epoch, epoch)
    may_wait = record.state is State.QUEUED and not record.is_unsent and home is None
    if may_wait and any(desk.broker.heads(Envelope.from_text(record.message))):
        return False
    due_in_ms = reliable_of(desk.app).config.queued_ms
    answer = ledger.resend(due, due_in_ms=due_in_ms, message=message)
    if not isinstance(answer, answers.Send):
        return False
    try:
        resend(desk.app, Envelope.from_text(answer.message))
    except Exception:
        # It is sent when this is repeated, or by a pass.
        ledger.postpone(Due(due.task_id, answer.due_ms), due_in_ms=0, is_unsent=True)
        raise
    return True
