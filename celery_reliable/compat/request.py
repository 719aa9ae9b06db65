"""Celery's requests: one delivery of a message in the worker's main process."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request, create_request_cls
from kombu.utils.imports import symbol_by_name

from celery_reliable.compat.relied import Name, Part, relies_on

__all__ = ["OpenRequest", "request_for"]

_REQUEST = "celery.worker.request:Request"


@relies_on(
    Name(f"{_REQUEST}._context"),
    Name(f"{_REQUEST}._already_revoked", used_by=f"{_REQUEST}._announce_revoked"),
    Name(
        f"{_REQUEST}._announce_revoked",
        takes=("reason", "terminated", "signum", "expired"),
        used_by=f"{_REQUEST}.revoked",
    ),
    Name(f"{_REQUEST}._announce_revoked", used_by=f"{_REQUEST}.terminate"),
    Name(f"{_REQUEST}.on_failure", takes=("exc_info", "send_failed_event", "return_ok")),
    Name(f"{_REQUEST}.on_timeout", takes=("soft", "timeout")),
    Name(f"{_REQUEST}.on_retry", takes=("exc_info",)),
    Name(f"{_REQUEST}.cancel", takes=("pool", "signal", "emit_retry")),
    part=Part.WORKER,
)
class OpenRequest(Request):
    """Celery's request with names that a subclass may use or override: what is done when it is
    revoked.

    Overrides ``Request._announce_revoked``, reads ``_already_revoked`` and ``_context``: the
    signals come after the message was acknowledged, and a request does not report why its process
    was stopped.  Checked on Celery 5.6.3 and 5.7.0.  Without it what is revoked runs again.
    """

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        self.announce_revoked(reason, terminated, signum, expired)

    def announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Store that the task was revoked or has expired, acknowledge its message, and send the
        event.
        """
        super()._announce_revoked(reason, terminated, signum, expired)

    @property
    def is_revoked(self) -> bool:
        """Whether `announce_revoked` was called."""
        return bool(self._already_revoked)

    @is_revoked.setter
    def is_revoked(self, value: bool) -> None:
        self._already_revoked = value

    @property
    def context(self) -> Any:
        """The task's request, as receivers of signals are given it."""
        return self._context


@relies_on(
    Name(
        "celery.worker.request:create_request_cls",
        takes=("base", "task", "pool", "hostname", "eventer"),
        used_by="celery.worker.strategy:default",
    ),
    part=Part.PREFORK,
)
def request_for(c: Any, task: Any, message: Any, pid: int | None, started_at: float) -> Any:
    """Return a request of *message* at consumer *c*, as Celery's strategy makes it, which the
    process *pid* runs since *started_at* (seconds of the epoch).

    Calls ``create_request_cls``, as the strategy does, and sets ``time_start``, as ``on_accepted``
    does.  Checked on Celery 5.6.3 and 5.7.0.  Without it nobody ends the attempt of a process that
    died while it took its own messages.
    """
    made = create_request_cls(
        symbol_by_name(task.Request), task, c.pool, c.hostname, c.event_dispatcher, app=c.app
    )
    request = made(
        message,
        on_ack=message.ack_log_error,
        on_reject=message.reject_log_error,
        app=c.app,
        hostname=c.hostname,
        eventer=c.event_dispatcher,
        task=task,
        connection_errors=c.connection_errors,
        body=message.body,
        headers=message.headers,
        decoded=False,
        utc=True,
    )
    request.worker_pid, request.time_start = pid, started_at
    return request
