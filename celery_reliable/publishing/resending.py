"""Sending a stored message again."""

from __future__ import annotations

from contextlib import nullcontext

from celery import Celery

from celery_reliable.broker import sending_first
from celery_reliable.message import Envelope

__all__ = ["resend"]

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
    first = sending_first() if is_first else nullcontext()
    with first, app.producer_pool.acquire(block=True) as producer:
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
