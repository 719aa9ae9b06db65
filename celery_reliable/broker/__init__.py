"""The broker carries: kombu's Redis transports with an unacked hash of its own for each worker."""

from __future__ import annotations

from celery_reliable.broker.connection import keeping_transport
from celery_reliable.broker.deliveries import Arrival, Delivery, Queues
from celery_reliable.broker.entries import Entry, quoted, unquoted
from celery_reliable.broker.hooks import WorkerHooks
from celery_reliable.broker.inbox import bring_all_back
from celery_reliable.broker.producer_transport import (
    sending_again,
    sending_together,
    sending_transport_for,
    sending_with,
)
from celery_reliable.broker.qos import GOES_FIRST
from celery_reliable.broker.server_mark import forget_server, server_seen
from celery_reliable.broker.unacked import (
    UNACKED_LIST_PREFIX,
    UNACKED_PREFIX,
    Unacked,
    take_next_text,
    unacked_names,
)
from celery_reliable.broker.worker_transport import SentinelTransport, Transport, transport_for
from celery_reliable.broker.worker_unacked import WorkerUnacked, opened_unacked, unacked_of

__all__ = [
    "GOES_FIRST",
    "UNACKED_LIST_PREFIX",
    "UNACKED_PREFIX",
    "Arrival",
    "Delivery",
    "Entry",
    "Queues",
    "SentinelTransport",
    "Transport",
    "Unacked",
    "WorkerHooks",
    "WorkerUnacked",
    "bring_all_back",
    "forget_server",
    "keeping_transport",
    "opened_unacked",
    "quoted",
    "sending_again",
    "sending_together",
    "sending_transport_for",
    "sending_with",
    "server_seen",
    "take_next_text",
    "transport_for",
    "unacked_names",
    "unacked_of",
    "unquoted",
]
