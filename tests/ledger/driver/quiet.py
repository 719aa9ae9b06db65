"""What Celery, kombu and the package would wait for in real time, or print."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import redis
from celery.app.trace import build_tracer
from redis.connection import AbstractConnection

from celery_reliable.broker import UNACKED_PREFIX
from celery_reliable.ledger import caller
from celery_reliable.native_threads import wait_readable
from celery_reliable.worker import (
    consumer_step,
    heartbeat,
    order_keeping,
    passes,
    waker,
    worker_step,
)
from tests.ledger.driver import clock
from tests.ledger.driver.hosts import HostState

__all__ = ["IN_ITS_PLACE", "hush", "patches", "trace_tasks"]


def _packed(*words: str) -> bytes:
    parts = [b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)


#: How the driver's clock and run id are asked for.
IN_ITS_PLACE = {
    _packed("TIME"): _packed("MGET", clock.SECONDS, clock.MICROS),
    _packed("INFO", "server"): _packed("GET", clock.RUN_ID),
}


class _Gate:
    """Nobody forks here."""

    def let_fork(self) -> None:
        """Nobody wants to."""

    def __enter__(self) -> None:
        """Nobody waits."""

    def __exit__(self, *_: object) -> None:
        """Likewise."""


def patches(world: Any) -> Iterator[Any]:
    """Yield what is to stand in for real waiting while *world* runs."""
    schedule = world.schedule

    def waited(sockets: list[Any], seconds: float) -> list[Any]:
        deadline = schedule.now_ms + seconds * 1000
        while True:
            found = wait_readable(sockets, 0)
            left = deadline - schedule.now_ms
            if found or left <= 0:
                return list(found)
            schedule.sleep(min(left / 1000, 1.0))

    gate = _Gate()
    yield mock.patch.object(heartbeat, "wait_readable", waited)
    for module in (passes, caller):
        if hasattr(module, "fork_gate"):
            yield mock.patch.object(module, "fork_gate", gate)
    # What a worker asks the server before it starts.
    yield mock.patch.object(worker_step, "check_start")
    state = HostState(world)
    for module in (consumer_step, order_keeping):
        yield mock.patch.object(module, "state", state)
        yield mock.patch.object(
            module, "running_requests", partial(getattr, state, "active_requests")
        )
    yield mock.patch.object(
        consumer_step, "fetched_requests", partial(getattr, state, "reserved_requests")
    )
    bell = SimpleNamespace(wait=lambda seconds: True, close=lambda: None)
    yield mock.patch.object(waker, "Bell", return_value=bell)
    # One app is that of all workers.
    yield mock.patch.object(worker_step, "consume_apart", _with_own_hash)


def _with_own_hash(_: Any, process: Any) -> tuple[str, list[Any]]:
    return f"{UNACKED_PREFIX}{process.base}", []


def hush() -> None:
    """Leave out what only takes time: logs, warnings, and what redis-py tells a new server."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    redis.utils.get_lib_version = lambda: "0"  # type: ignore[assignment]
    AbstractConnection.activate_maint_notifications_handling_if_enabled = _nothing  # type: ignore


def _nothing(*_: Any, **__: Any) -> None:
    """Nobody asked."""


def trace_tasks(app: Any) -> None:
    """Build what Celery's workers build for each task, once."""
    for name, task in app.tasks.items():
        task.__trace__ = build_tracer(name, task, app.loader, "driver", app=app)
