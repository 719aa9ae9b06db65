"""The broker carries: kombu's Redis transports with an unacked hash of its own for each worker."""

from __future__ import annotations

from celery_reliable.broker.channel import (
    forget_server,
    keeping_transport,
    server_seen,
    transport_for,
)
from celery_reliable.broker.deliveries import Delivery, Queues, WorkerHooks
from celery_reliable.broker.producer_transport import (
    sending_again,
    sending_transport_for,
    sending_with,
)
from celery_reliable.broker.qos import GOES_FIRST
from celery_reliable.broker.unacked import (
    UNACKED_LIST_PREFIX,
    UNACKED_PREFIX,
    Entry,
    Unacked,
    quoted,
    take_text,
    unacked_names,
    unquoted,
)
from celery_reliable.broker.waiting import bring_all_back, inbox_of
from celery_reliable.broker.worker_transport import SentinelTransport, Transport
from celery_reliable.broker.worker_unacked import WorkerUnacked

__all__ = [
    "GOES_FIRST",
    "UNACKED_LIST_PREFIX",
    "UNACKED_PREFIX",
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
    "inbox_of",
    "keeping_transport",
    "quoted",
    "sending_again",
    "sending_transport_for",
    "sending_with",
    "server_seen",
    "take_text",
    "transport_for",
    "unacked_names",
    "unquoted",
]
