"""What those who watch are told of a task: a line in the log, a signal, and events of Celery's.

Events are sent as Celery sends those of tasks: when the worker was started with ``-E``, or as a
monitor switches them on and off.  The main loop has a connection for that; all others send over one
of the app's, or of their own where they may not share sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from celery import Celery

from celery_reliable import signals
from celery_reliable.model import Claim, Reason
from celery_reliable.process import current_worker

__all__ = ["buried", "is_watched", "lost", "recovered", "send_event", "through"]

logger = logging.getLogger(__name__)

#: Sends an event of a kind with fields, if it is wanted.
Send = Callable[..., None]

_send: ContextVar[Send | None] = ContextVar("celery_reliable_send", default=None)


@contextmanager
def through(send: Send) -> Iterator[None]:
    """Send the events of this thread by *send*, instead of over a connection of the app's."""
    token = _send.set(send)
    try:
        yield
    finally:
        _send.reset(token)


def is_watched(app: Celery) -> bool:
    """Whether this process sends events of tasks: as its worker does, or as is set."""
    worker = current_worker()
    return worker.sends_events if worker is not None else bool(app.conf.worker_send_task_events)


def send_event(app: Celery, kind: str, name: str, task_id: str, **fields: Any) -> None:
    """Send an event about a task, if somebody wants it; whatever goes wrong is only logged."""
    # A consumer keeps the worker of a task by that name.
    assert "worker" not in fields
    task = app.tasks.get(name)
    if task is not None and not task.send_events:
        return
    try:
        send = _send.get()
        if send is not None:
            send(kind, uuid=task_id, name=name, **fields)
        elif is_watched(app):
            _send_over_app(app, kind, uuid=task_id, name=name, **fields)
    except Exception as exc:
        logger.info("event_not_sent event=%s id=%s error=%r", kind, task_id, exc)


def _send_over_app(app: Celery, kind: str, **fields: Any) -> None:
    with app.amqp.producer_pool.acquire(block=True) as producer:
        # Celery would wait for the broker as long as it takes, and a task would wait with it.
        producer.connection.ensure_connection(max_retries=1, interval_start=0)
        with app.events.Dispatcher(
            producer.connection,
            hostname=_node_name(),
            channel=producer.channel,
            buffer_while_offline=False,
        ) as dispatcher:
            dispatcher.send(kind, **fields)


def _node_name() -> str | None:
    """Return the name of this process's worker: consumers would take another for one more."""
    worker = current_worker()
    return worker.base.rpartition("/")[0] if worker is not None else None


def lost(
    app: Celery,
    name: str,
    claim: Claim,
    *,
    losses: int,
    cause: str,
    is_counted: bool = True,
    exception: object = "",
) -> None:
    """Tell that an attempt is over without an outcome.  *is_counted*: that is put down to it."""
    logger.warning(
        "task_lost name=%s id=%s attempt=%d losses=%d counted=%s cause=%s worker=%s exception=%s",
        name,
        claim.task_id,
        claim.attempt,
        losses,
        is_counted,
        cause,
        claim.worker,
        exception,
    )
    facts = {
        "attempt": claim.attempt, "losses": losses, "cause": cause, "is_counted": is_counted,
    }  # fmt: skip
    signals.task_lost.send(sender=name, task_id=claim.task_id, **facts)
    send_event(app, "task-lost", name, claim.task_id, owner=claim.worker, **facts)


def recovered(app: Celery, name: str, claim: Claim) -> None:
    """Tell that an attempt begins that follows a loss."""
    facts = {"attempt": claim.attempt, "losses": claim.losses}
    send_event(app, "task-recovered", name, claim.task_id, owner=claim.worker, **facts)


def buried(
    app: Celery,
    name: str,
    task_id: str,
    reason: Reason,
    *,
    attempt: int = 0,
    losses: int = 0,
    exception: str = "",
    is_failure_told: bool = False,
) -> None:
    """Tell that a task was dead-lettered.  *is_failure_told*: Celery itself has sent its event, or
    another that says how the task ended, or is about to.
    """
    # Of what failed by itself Celery has said more.
    own = reason in (Reason.FAILED, Reason.REJECTED)
    logger.log(
        logging.WARNING if own else logging.ERROR,
        "task_buried name=%s id=%s reason=%s attempt=%d losses=%d exception=%s",
        name,
        task_id,
        reason.value,
        attempt,
        losses,
        exception,
    )
    facts = {
        "reason": reason.value, "attempt": attempt, "losses": losses, "exception": exception,
    }  # fmt: skip
    signals.task_buried.send(sender=name, task_id=task_id, **facts)
    if not is_failure_told:
        send_event(app, "task-failed", name, task_id, exception=exception, traceback="")
    send_event(app, "task-buried", name, task_id, **facts)
