"""The broker carries: kombu's Redis transports with an unacked hash of its own for each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_reliable.lazy import lazy_door

if TYPE_CHECKING:
    from celery_reliable.broker.connection import keeping_transport, transport_for
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
    from celery_reliable.broker.worker_transport import SentinelTransport, Transport
    from celery_reliable.broker.worker_unacked import WorkerUnacked, opened_unacked, unacked_of
else:
    __getattr__ = lazy_door(
        __name__,
        {
            "connection": ("keeping_transport", "transport_for"),
            "deliveries": (
                "Arrival",
                "Delivery",
                "Queues",
            ),
            "entries": (
                "Entry",
                "quoted",
                "unquoted",
            ),
            "hooks": ("WorkerHooks",),
            "inbox": ("bring_all_back",),
            "producer_transport": (
                "sending_again",
                "sending_together",
                "sending_transport_for",
                "sending_with",
            ),
            "qos": ("GOES_FIRST",),
            "server_mark": (
                "forget_server",
                "server_seen",
            ),
            "unacked": (
                "UNACKED_LIST_PREFIX",
                "UNACKED_PREFIX",
                "Unacked",
                "take_next_text",
                "unacked_names",
            ),
            "worker_transport": ("SentinelTransport", "Transport"),
            "worker_unacked": (
                "WorkerUnacked",
                "opened_unacked",
                "unacked_of",
            ),
        },
    )

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
