"""Messages that no worker can run: of an unknown task, invalid, not to be decoded, or none at all.

Celery logs and drops them, or ends.  Here each becomes a dead letter first, which an operator sees,
and replays when a worker can run it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from celery.worker import state

from celery_reliable import events
from celery_reliable.app import Reliable
from celery_reliable.broker import Delivery
from celery_reliable.compat import noted
from celery_reliable.compat.consumer import handle_by
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import ReliableError, one_line
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import (
    HEADER,
    Envelope,
    Stamp,
    as_sent,
    check_delivered,
    headers_as_written,
)
from celery_reliable.model import Claim, EarlyClaim, Reason
from celery_reliable.worker.claims import PATIENCE_SECONDS
from celery_reliable.worker.special_tasks import SpecialTasks
from celery_reliable.worker.unclaimed import claimed_first

__all__ = ["Unprocessable"]


#: What could not be buried, as the ledger was away, is tried again after so long.
_AGAIN_SECONDS = 5.0


class Unprocessable:
    """Stands before what a worker's consumer does with messages that it cannot run."""

    def __init__(
        self, reliable: Reliable, process: WorkerProcess, special_tasks: SpecialTasks
    ) -> None:
        self._reliable = reliable
        self._process = process
        self._special_tasks = special_tasks
        self._consumer: Any = None
        #: How its connection fails.
        self._broken: tuple[Any, ...] = ()

    def install(self, c: Any) -> None:
        """Take the place of the consumer's handlers; with every connection anew."""
        own = type(c)
        # kombu's Redis transport counts KeyError among them; what a message raises is not one.
        self._broken = tuple(one for one in c.connection_errors if one is not KeyError)
        self._consumer = c

        def on_unknown_message(body: Any, message: Any) -> None:
            error = ValueError("not a task's message: its headers name no task")
            self._bury(message, error, partial(own.on_unknown_message, c, body, message))

        def on_unknown_task(body: Any, message: Any, exc: Exception) -> None:
            name = _told(message).get("task")
            error = LookupError(f"no task {name!r} is known to this worker")
            drop = partial(own.on_unknown_task, c, body, message, exc)
            # Of an unknown task Celery itself sends the event task-failed.
            self._bury(message, error, drop, is_failure_told=True)

        def on_invalid_task(body: Any, message: Any, exc: Exception) -> None:
            self._bury(message, exc, partial(own.on_invalid_task, c, body, message, exc))

        def on_decode_error(message: Any, exc: Exception) -> None:
            self._bury(message, exc, partial(own.on_decode_error, c, message, exc))

        def create_task_handler(*args: Any, **kwargs: Any) -> Callable[[Any], None]:
            return self._handler(own.create_task_handler(c, *args, **kwargs), on_invalid_task)

        handle_by(
            c,
            create_task_handler=create_task_handler,
            on_unknown_message=on_unknown_message,
            on_unknown_task=on_unknown_task,
            on_invalid_task=on_invalid_task,
            on_decode_error=on_decode_error,
        )

    def _handler(
        self, handle: Callable[[Any], None], on_invalid_task: Callable[..., None]
    ) -> Callable[[Any], None]:
        """Return Celery's own *handle*, before which a message is looked at."""

        def on_task_received(message: Any) -> None:
            try:
                check_delivered(message)
                handle(message)
            except (*self._broken, MemoryError):
                raise
            except Exception as exc:
                if any(one.message is message for one in list(state.reserved_requests)):
                    raise
                # It would end the worker, and then the next.
                on_invalid_task(None, message, exc)

        if self._reliable.is_delivered_from_ledger:
            return on_task_received
        return claimed_first(self._reliable, self._process, self._special_tasks, on_task_received)

    def bury_unreadable(self, delivery: Delivery, error: Exception) -> bool:
        """Put a list element that is no message among the dead letters; False when the ledger is
        away: then it stays in the unacked hash, and is looked at again.
        """
        # The same element has the same name: it may be buried twice.
        nameless = f"unreadable-{uuid.uuid5(uuid.NAMESPACE_OID, delivery.tag).hex[:16]}"
        written = headers_as_written(delivery.raw)
        fields = ((k, written.get(k)) for k in ("id", "task", HEADER))
        told = {k: v for k, v in fields if v and type(v) is str}
        # Otherwise its record would stay, and have the message sent again and again.
        task_id = told.setdefault("id", nameless)
        name = told.get("task", "")
        try:
            kept = _kept(delivery.raw, told, delivery.queue)
            if not self._buried(task_id, name, error, kept) and not Stamp.of(told).epoch:
                # Another message than that of the task which has this id.
                kept = _kept(delivery.raw, {**told, "id": nameless}, delivery.queue)
                self._buried(nameless, name, error, kept)
        except ReliableError as exc:
            logger.error("unprocessable_not_buried id=%s error=%s", task_id, exc)
            return False
        return True

    def _bury(
        self,
        message: Any,
        error: Exception,
        drop: Callable[[], None],
        *,
        is_failure_told: bool = False,
    ) -> None:
        """Put a message among the dead letters, then let Celery *drop* it; only acknowledge a late
        copy, whose task Celery would otherwise mark as failed.
        """
        told = _told(message)
        task_id = str(told.get("id") or f"unreadable-{os.urandom(8).hex()}")
        name = str(told.get("task") or "")
        early: EarlyClaim | None = noted(message, "claim")
        claim = early.of(task_id) if early is not None else None
        try:
            is_buried = self._buried(
                task_id, name, error, _envelope(message), claim, is_failure_told=is_failure_told
            )
        except ReliableError as exc:
            logger.error("unprocessable_not_buried name=%s id=%s error=%s", name, task_id, exc)
            again = partial(self._bury, message, error, drop, is_failure_told=is_failure_told)
            # Until then it is neither acknowledged nor rejected.  Celery cancels this as it loses
            # its connection: what that has delivered is delivered again.
            self._consumer.timer.call_after(_AGAIN_SECONDS, again)
            return
        if not is_buried:
            logger.info("delivery_dropped name=%s id=%s reply=late", name, task_id)
            message.ack_log_error(logger, self._broken)
            return
        try:
            drop()
        except (TypeError, ValueError, AttributeError) as exc:
            # Celery cannot even say what it drops.
            logger.error("unprocessable_not_dropped name=%s id=%s error=%s", name, task_id, exc)
            if not message.acknowledged:
                message.reject()

    def _buried(
        self,
        task_id: str,
        name: str,
        error: Exception,
        envelope: Envelope,
        claim: Claim | None = None,
        *,
        is_failure_told: bool = False,
    ) -> bool:
        """Put a message among the dead letters, and tell so; False for a late copy of a task that
        has ended.

        Raises ReliableError when the ledger is away or refuses: then nothing is known.
        """
        ledger, stamp = self._reliable.ledger, Stamp.of(envelope.headers)
        why: dict[str, Any] = {
            "exception": one_line(error),
            "traceback": "",
            "patience_seconds": PATIENCE_SECONDS,
        }
        if claim is not None:
            answer = ledger.bury(claim, Reason.UNPROCESSABLE, **why)
        else:
            bury = partial(
                ledger.bury_message,
                task_id,
                Reason.UNPROCESSABLE,
                message=envelope.to_text(),
                name=name,
                epoch=stamp.epoch,
                **why,
            )
            answer = bury(is_unproved=not stamp.generation)
            if isinstance(answer, answers.Unrecorded) and not ledger.has_ended(
                task_id, stamp.generation, stamp.epoch, patience_seconds=PATIENCE_SECONDS
            ):
                answer = bury(is_unproved=True)
        if not isinstance(answer, answers.Buried):
            return False
        with events.through(self._send):
            events.task_buried(
                app=self._reliable.app,
                name=name,
                task_id=task_id,
                reason=Reason.UNPROCESSABLE,
                attempt=claim.attempt if claim is not None else 0,
                losses=claim.losses if claim is not None else 0,
                exception=one_line(error),
                is_failure_told=is_failure_told,
            )
        return True

    def _send(self, kind: str, **fields: Any) -> None:
        """Send an event over the worker's own connection, as Celery does."""
        dispatcher = self._consumer.event_dispatcher
        if dispatcher is not None and dispatcher.enabled:
            dispatcher.send(kind, **fields)


def _told(message: Any) -> dict[str, Any]:
    """Return what names a message's task: its headers, or its body under protocol 1."""
    headers = message.headers if isinstance(message.headers, dict) else {}
    if "task" in headers:
        return headers
    # Whatever decoding raises.
    with suppress(Exception):
        return message.payload if isinstance(message.payload, dict) else {}
    return headers


def _envelope(message: Any) -> Envelope:
    try:
        return as_sent(message)
    except Exception as exc:
        # Whatever it is, an operator is to see it.
        logger.warning("message_kept_as_it_is_shown error=%s", exc)
        queue = str((message.delivery_info or {}).get("routing_key") or "")
        return _kept(repr(message.body).encode("utf-8", "backslashreplace"), {}, queue)


def _kept(raw: bytes, headers: dict[str, Any], queue: str) -> Envelope:
    """Return an envelope for what is no message: as it is, for an operator to see."""
    return Envelope(raw, "application/octet-stream", "binary", headers, {}, "", queue)
