"""Sending a stored message again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery import Celery

from celery_reliable.app import Reliable, reliable_of
from celery_reliable.broker import sending_again
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import NAMED, RETURNS, Envelope
from celery_reliable.model import Due

__all__ = [
    "list_of",
    "resend",
    "send_stored",
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
