"""How a message is sent: the errors of a publication that failed, for how long it is tried, and the
sending of a stored message again.

Callers of Celery handle kombu's OperationalError, so each of these errors is one too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from celery_reliable import exceptions
from celery_reliable.app import Reliable, reliable_of
from celery_reliable.broker import sending_again
from celery_reliable.exceptions import TaskExists, said
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import NAMED, Envelope
from celery_reliable.model import Due, State, TaskRef

__all__ = ["exists", "list_of", "not_sent", "outages", "resend", "retry_seconds", "send_stored"]

#: One retry without a pause, for a connection that went stale in the pool.
_RESEND_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


class NotPublished(exceptions.NotPublished, OperationalError):
    __doc__ = exceptions.NotPublished.__doc__


class PublishUnknown(exceptions.PublishUnknown, OperationalError):
    __doc__ = exceptions.PublishUnknown.__doc__


def exists(ref: TaskRef, found: answers.InUse | answers.Anothers) -> TaskExists:
    """Return the error of a publication whose id is in use."""
    since = datetime.fromtimestamp(found.since_ms / 1000, tz=timezone.utc)
    what = "is a dead letter" if found.state == State.DEAD.value else f"is {found.state}"
    since_when = f"{what} since {since:%Y-%m-%d %H:%M:%S} UTC"
    why = (
        f"its id is that of a task {found.name}, which {since_when}. An id is one task's."
        if isinstance(found, answers.Anothers)
        else f"there is one of this id, which {since_when} (if_exists='refuse')."
    )
    return TaskExists(
        f"Task {ref.name}[{ref.id}] was not published: {why}",
        task_id=ref.id,
        state=found.state,
        since=since,
    )


def not_sent(ref: TaskRef, why: Exception) -> NotPublished:
    """Return the error of a publication that failed, and of which no record stays."""
    return NotPublished(f"Task {ref.name}[{ref.id}] was not published: {said(why)}", task_id=ref.id)


def outages(connection: Any) -> tuple[type[BaseException], ...]:
    """Return what a producer raises when its broker is away: what Celery makes an OperationalError,
    and that.
    """
    return (
        OperationalError,
        *connection.recoverable_connection_errors,
        *connection.recoverable_channel_errors,
    )


def retry_seconds(options: Mapping[str, Any]) -> float:
    """Return for how many seconds kombu retries a publication with these options.

    They come from Celery's setting `task_publish_retry_policy` or from the call.  The time that the
    attempts themselves take is not counted.
    """
    if not options.get("retry"):
        return 0.0
    policy = options.get("retry_policy") or {}
    # Kombu takes no time for no limit, too.
    limit, most = float(policy.get("timeout") or math.inf), policy.get("max_retries", 3)
    if most is None:
        return limit
    start, step = policy.get("interval_start", 0), policy.get("interval_step", 0.2)
    highest = policy.get("interval_max", 0.2)
    return min(limit, float(sum(min(start + step * n, highest) for n in range(most))))


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
