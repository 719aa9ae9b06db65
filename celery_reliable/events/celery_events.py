"""Celery's own events. They are sent if the worker was started with ``-E``, or if a monitor has
switched them on.

The main loop has a connection for them. Other threads use one of the app's, or one of their own
if they may not share sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from celery_reliable.leases import nodename_of

__all__ = ["Sender", "send", "send_of_worker", "set_sender", "through"]

#: Sends an event of a kind with fields, if it is wanted.
Send = Callable[..., None]


class Sender(Protocol):
    """The worker in whose name this process sends events."""

    #: The node name, a slash, and an id that differs from start to start.
    base: str
    #: Of its main process.
    pid: int

    @property
    def sends_events(self) -> bool:
        """Whether it sends events of tasks just now."""


_send: ContextVar[Send | None] = ContextVar("celery_reliable_send", default=None)
_sender: Sender | None = None


def set_sender(worker: Sender | None) -> None:
    """Send events in the name of a worker from now on, also in the children that are forked."""
    global _sender
    _sender = worker


@contextmanager
def through(send: Send) -> Iterator[None]:
    """Send the events of this thread by *send*, instead of over a connection of the app's."""
    token = _send.set(send)
    try:
        yield
    finally:
        _send.reset(token)


def send(app: Any, kind: str, name: str, task_id: str, **fields: Any) -> None:
    """Send an event about a task, if somebody wants it.  Raises whatever connections raise."""
    # A consumer keeps the worker of a task by that name.
    assert "worker" not in fields
    task = app.tasks.get(name)
    if task is not None and not task.send_events:
        return
    own = _send.get()
    if own is not None:
        own(kind, uuid=task_id, name=name, **fields)
    elif _is_watched(app):
        _send_over_app(app, kind, uuid=task_id, name=name, **fields)


def send_of_worker(app: Any, kind: str, **fields: Any) -> None:
    """Send an event that is about no task, if somebody wants it and this process is a worker's: a
    monitor takes everybody else for a worker of that name.  Raises whatever connections raise.
    """
    if _sender is not None and _sender.sends_events:
        _send_over_app(app, kind, **fields)


def _is_watched(app: Any) -> bool:
    """Whether this process sends events of tasks: as its worker does, or as is set."""
    return _sender.sends_events if _sender is not None else bool(app.conf.worker_send_task_events)


def _send_over_app(app: Any, kind: str, **fields: Any) -> None:
    with app.amqp.producer_pool.acquire(block=True) as producer:
        # Celery's own way waits for the broker for ever, and the task would wait with it.
        producer.connection.ensure_connection(max_retries=1, interval_start=0)
        with app.events.Dispatcher(
            producer.connection,
            # In the worker's own name: a monitor takes any other name for one more worker.
            hostname=nodename_of(_sender.base) if _sender is not None else None,
            channel=producer.channel,
            buffer_while_offline=False,
        ) as dispatcher:
            if _sender is not None:
                # A monitor keeps it as the worker's, whichever process tells.
                dispatcher.pid = _sender.pid
            dispatcher.send(kind, **fields)
