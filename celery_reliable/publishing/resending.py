"""Sending a stored message again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery import Celery

from celery_reliable.app import Reliable, reliable_of
from celery_reliable.broker import sending_again
from celery_reliable.ledger import Ledger, Resent, answers
from celery_reliable.ledger.answers import PlaceAnswer
from celery_reliable.log import logger
from celery_reliable.message import NAMED, RETURNS, Envelope, NamedWorkers, Stamp, is_named
from celery_reliable.model import Due, Record
from celery_reliable.options import CALL, room_of
from celery_reliable.publishing.placement import placed

__all__ = [
    "let_through",
    "list_of",
    "resend",
    "send_stored",
    "step_up",
    "wait_for_eta",
]

#: One retry without a pause, for a connection that went stale in the pool.
_RESEND_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def resend(app: Celery, envelope: Envelope, *, is_first: bool = False) -> None:
    """Send a stored message again: the same id, root, group, chord, stamps, priority and expiry.

    Raises kombu's errors when the broker cannot be reached.  Declares the message's exchange if it
    is one of the app's queues'.  *is_first*: in front of what waits there in the same priority,
    where the queue is on the ledger's server.
    """
    exchanges = [
        queue.exchange
        for queue in app.amqp.queues.values()
        if envelope.exchange and queue.exchange and queue.exchange.name == envelope.exchange
    ]
    with sending_again(is_first=is_first), app.producer_pool.acquire(block=True) as producer:
        producer.publish(
            envelope.body,
            exchange=envelope.exchange,
            routing_key=envelope.routing_key,
            content_type=envelope.content_type,
            content_encoding=envelope.content_encoding,
            compression="",
            declare=exchanges[:1],
            headers=dict(envelope.headers),
            retry=True,
            retry_policy=_RESEND_POLICY,
            **envelope.properties,
        )


def send_stored(
    app: Celery,
    ledger: Ledger,
    task_id: str,
    answer: answers.Send,
    *,
    is_first: bool = False,
) -> bool:
    """Send what the ledger has said is to be sent.  False if that was not possible: then the next
    pass tries again.  *is_first*: as `resend`.
    """
    try:
        envelope = Envelope.from_text(answer.message)
        if answer.is_suspect:
            # It came back from a dead worker.
            envelope = replace(envelope, properties={**envelope.properties, RETURNS: 1})
        resend(app, envelope, is_first=is_first)
    except Exception as exc:
        # Usually the broker is away.
        logger.warning("send_left_to_sweeper id=%s error=%s", task_id, exc)
        again_in_ms = reliable_of(app).config.sweep_ms
        ledger.postpone(Due(task_id, answer.due_ms), due_in_ms=again_in_ms, is_unsent=True)
        return False
    return True


def list_of(reliable: Reliable, headers: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """Return the key of the list that the ledger may put a message into as it is; empty where it
    may not: in other priorities a queue has other lists.

    *told*: the message's `exchange`, `routing_key` and `priority`.
    """
    is_plain = not told.get("exchange") and not told.get("priority")
    if not reliable.queues_at or not is_plain or NAMED in headers:
        return ""
    queue = reliable.app.amqp.queues.get(told.get("routing_key"))
    # The list of one that expires has to be kept from that.
    return reliable.list_prefix + queue.name if queue is not None and not queue.expires else ""


def wait_for_eta(
    reliable: Reliable,
    task_id: str,
    envelope: Envelope,
    seconds: float,
    *,
    patience_seconds: float | None = None,
) -> bool:
    """Let a recorded task wait in the ledger for its ETA, in so many *seconds*; False when it does
    not wait, so that its message is to be sent.  Raises what the ledger raises.
    """
    told = {**envelope.properties, "exchange": envelope.exchange}
    told["routing_key"] = envelope.routing_key
    answer = reliable.ledger.moments.reserve(
        task_id,
        seconds,
        epoch=Stamp.of(envelope.headers).epoch,
        queue=list_of(reliable, envelope.headers, told),
        patience_seconds=patience_seconds,
    )
    return isinstance(answer, answers.ParkedUntil)


#: So many are let through by one process at one time at most; a pass goes on with the line.
_MOST = 100


def let_through(app: Celery, ledger: Ledger, object_key: str, first: str) -> None:
    """Have the *first* of a line take its place and send it, and so on while the object is free.

    Each of them is due, so what goes wrong here is only told: a pass does the same.
    """
    try:
        for _ in range(_MOST):
            record = ledger.find(first)
            if record is not None and isinstance(step_up(app, ledger, record), answers.Full):
                return
            first = ledger.next_in_line(object_key)
            if not first:
                return
    except Exception as exc:
        logger.warning("send_left_to_sweeper id=%s error=%s", first, exc)


def step_up(app: Celery, ledger: Ledger, record: Record) -> PlaceAnswer:
    """Let a task that stands in line take its place if it is its turn, and send it."""
    config, object_key = reliable_of(app).config, record.in_line_of
    task = app.tasks.get(record.name)
    # The task, or its call, says how many there are by now; without its code, how many there were.
    headers = Envelope.from_text(record.message).headers if CALL in record.message else None
    room = room_of(task, object_key, headers) if task is not None else None
    answer = ledger.step_up(
        object_key,
        room.places if room is not None else record.places or 1,
        record.task_id,
        record.epoch,
        due_in_ms=config.queued_ms,
    )
    if isinstance(answer, answers.Send):
        sent = _addressed(app, ledger, record, answer) if is_named(answer.message) else answer
        if sent is None:
            # A pass goes on with it.
            ledger.postpone(Due(record.task_id, answer.due_ms), due_in_ms=0, is_unsent=True)
        else:
            send_stored(app, ledger, record.task_id, sent)
    return answer


def _addressed(
    app: Celery, ledger: Ledger, record: Record, answer: answers.Send
) -> answers.Send | None:
    """Return what is to be sent of a task that names workers, to one of those that live.

    None where a pass has to see to it: none of them lives, or the task is a member of a run, for
    whose worker the pass answers.
    """
    reliable, envelope = reliable_of(app), Envelope.from_text(answer.message)
    named = NamedWorkers.of(envelope.headers)
    if named is None or named.run:
        return None
    place = placed(named, reliable.living.now())
    if place is None:
        return None
    sent = ledger.resend(
        Due(record.task_id, answer.due_ms),
        due_in_ms=reliable.config.queued_ms,
        message=Resent(place.readdressed(envelope).to_text(), record.epoch, record.epoch),
    )
    return sent if isinstance(sent, answers.Send) else None
