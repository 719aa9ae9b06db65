"""Workers that wait for messages that are filed as they leave their queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from unittest import mock

from kombu.transport.redis import Empty

from celery_reliable.broker import arriving
from celery_reliable.worker import consumer_step, order_keeping, unbegun

__all__ = ["await_one", "give", "patches"]

#: A world's server is asked only where a message is: its wait is over at once.
_SECONDS = 0.01


def give(host: Any) -> None:
    """Let a worker claim what comes, as long as a process of the driver's pool is idle."""
    found = host.step.arrivals
    if found is not None:
        found._has_idle_child = lambda: host.n_slots > len(host.jobs) + len(host.waiting)


def patches(world: Any) -> Iterator[Any]:
    """Yield what each worker has for itself, and here all have together."""
    for module in (consumer_step, unbegun):
        yield mock.patch.object(module, "state", world.state)
    yield mock.patch.object(arriving, "WAIT_SECONDS", _SECONDS)
    yield mock.patch.object(
        order_keeping, "running_requests", partial(getattr, world.state, "active_requests")
    )


def await_one(host: Any) -> bool:
    """Wait for a message, and deliver it; False where the worker has to pop it."""
    channel = host.channel
    if not channel._may_take()[1]:
        return True
    if channel.client.connection is None:
        channel.client.connection = channel.client.connection_pool.get_connection()
    if not channel.await_arrival():
        return False
    with suppress(Empty):
        channel.end_of_wait()
    return True
