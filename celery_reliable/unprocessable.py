"""Messages that no worker can run: of an unknown task, invalid, not to be decoded.

Celery logs and drops them.  Here each becomes a dead letter first, which an operator sees, and
replays when a worker can run it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from celery.worker import state

from celery_reliable.application import Reliable
from celery_reliable.endings import one_line
from celery_reliable.envelope import Envelope
from celery_reliable.exceptions import ReliableError
from celery_reliable.model import Reason
from celery_reliable.request import as_sent

__all__ = ["Unprocessable"]

logger = logging.getLogger(__name__)

#: The main loop asks the ledger only so long.
_PATIENCE_SECONDS = 1.0


def _nameless_id() -> str:
    """Return an id for a message that tells none."""
    return f"unreadable-{os.urandom(8).hex()}"


class Unprocessable:
    """Stands before what a worker's consumer does with messages that it cannot run."""

    def __init__(self, reliable: Reliable) -> None:
        self._reliable = reliable
        #: Not yet buried, as the ledger was away: neither acknowledged nor rejected until then.
        self._waiting: list[Callable[[], None]] = []

    def install(self, c: Any) -> None:
        """Take the place of the consumer's handlers; with every connection anew."""
        own = type(c)
        # What a former connection delivered is delivered again.
        self._waiting.clear()

        def on_unknown_message(body: Any, message: Any) -> None:
            error = ValueError("not a task's message: its headers name no task")
            self._bury(message, error, partial(own.on_unknown_message, c, body, message))

        def on_unknown_task(body: Any, message: Any, exc: Exception) -> None:
            name = _told(message).get("task")
            error = LookupError(f"no task {name!r} is known to this worker")
            self._bury(message, error, partial(own.on_unknown_task, c, body, message, exc))

        def on_invalid_task(body: Any, message: Any, exc: Exception) -> None:
            self._bury(message, exc, partial(own.on_invalid_task, c, body, message, exc))

        def on_decode_error(message: Any, exc: Exception) -> None:
            self._bury(message, exc, partial(own.on_decode_error, c, message, exc))

        # KeyError counts as one with Redis: of a message it is none.
        broken = tuple(one for one in c.connection_errors if one is not KeyError)

        def create_task_handler(*args: Any, **kwargs: Any) -> Callable[[Any], None]:
            handle = own.create_task_handler(c, *args, **kwargs)

            def on_task_received(message: Any) -> None:
                try:
                    handle(message)
                except (*broken, MemoryError):
                    raise
                except Exception as exc:
                    if any(one.message is message for one in list(state.reserved_requests)):
                        raise
                    # It would end the worker, and then the next.
                    on_invalid_task(None, message, exc)

            return on_task_received

        c.create_task_handler = create_task_handler
        c.on_unknown_message = on_unknown_message
        c.on_unknown_task = on_unknown_task
        c.on_invalid_task = on_invalid_task
        c.on_decode_error = c.task_consumer.on_decode_error = on_decode_error

    def catch_up(self) -> None:
        """Bury what waits for the ledger."""
        waiting, self._waiting = self._waiting, []
        while waiting and not self._waiting:
            waiting.pop(0)()
        self._waiting += waiting

    def _bury(self, message: Any, error: Exception, drop: Callable[[], None]) -> None:
        """Put a message among the dead letters, then let Celery *drop* it."""
        told = _told(message)
        task_id, name = str(told.get("id") or _nameless_id()), str(told.get("task") or "")
        try:
            self._reliable.ledger.bury_message(
                task_id,
                Reason.UNPROCESSABLE,
                exception=one_line(error),
                traceback="",
                message=_envelope(message).to_text(),
                name=name,
                patience_seconds=_PATIENCE_SECONDS,
            )
        except ReliableError as exc:
            logger.error("unprocessable_not_buried name=%s id=%s error=%s", name, task_id, exc)
            self._waiting.append(partial(self._bury, message, error, drop))
            return
        try:
            drop()
        except (TypeError, ValueError, AttributeError):
            # Celery cannot even say what it drops.
            logger.exception("unprocessable name=%s id=%s", name, task_id)
            if not message.acknowledged:
                message.reject()


def _told(message: Any) -> dict[str, Any]:
    """Return what a message tells of its task: by its headers, or by a body of protocol 1."""
    headers = message.headers
    if isinstance(headers, dict) and "task" in headers:
        return headers
    try:
        payload = message.payload
    except Exception:
        return headers if isinstance(headers, dict) else {}
    return payload if isinstance(payload, dict) else {}


def _envelope(message: Any) -> Envelope:
    try:
        return as_sent(message)
    except Exception as exc:
        # Whatever it is, an operator is to see it.
        logger.warning("message_kept_as_it_is_shown error=%r", exc)
        return Envelope(
            repr(message.body).encode("utf-8", "backslashreplace"),
            "application/octet-stream",
            "binary",
            {},
            {},
            "",
            str((message.delivery_info or {}).get("routing_key") or ""),
        )
