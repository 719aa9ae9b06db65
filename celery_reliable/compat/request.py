"""Celery's requests: one delivery of a message in the worker's main process."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request

from celery_reliable.compat.relied import Name, Part, relies_on

__all__ = ["OpenRequest"]

_REQUEST = "celery.worker.request:Request"


@relies_on(
    Name(f"{_REQUEST}.request_dict"),
    Name(f"{_REQUEST}._context"),
    Name(f"{_REQUEST}._already_cancelled", used_by=f"{_REQUEST}._announce_cancelled"),
    Name(f"{_REQUEST}._already_revoked", used_by=f"{_REQUEST}._announce_revoked"),
    Name(
        f"{_REQUEST}._announce_revoked",
        takes=("reason", "terminated", "signum", "expired"),
        used_by=f"{_REQUEST}.revoked",
    ),
    Name(f"{_REQUEST}._announce_revoked", used_by=f"{_REQUEST}.terminate"),
    Name(f"{_REQUEST}.on_failure", takes=("exc_info", "send_failed_event", "return_ok")),
    Name(f"{_REQUEST}.on_retry", takes=("exc_info",)),
    Name(f"{_REQUEST}.cancel", takes=("pool", "signal", "emit_retry")),
    Name(f"{_REQUEST}.acknowledge"),
    Name(f"{_REQUEST}.reject", takes=("requeue",)),
    Name(f"{_REQUEST}.send_event", takes=("type",)),
    part=Part.WORKER,
)
class OpenRequest(Request):
    """Celery's request with names that a subclass may use or override: what is done when it is
    revoked.

    Overrides ``Request._announce_revoked``, reads ``_already_revoked``, ``_already_cancelled`` and
    ``_context``: the signals come after the message was acknowledged, and a request tells nobody
    why its process was stopped.  Checked on Celery 5.6.3 and 5.7.0.  Without it what is revoked
    runs again, and what was stopped with its worker counts as lost.
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
    def is_cancelled(self) -> bool:
        """Whether its process was told to stop, for the task to run again."""
        return bool(self._already_cancelled)

    @property
    def context(self) -> Any:
        """The task's request, as receivers of signals are given it."""
        return self._context
