"""Celery's requests: one delivery of a message in the worker's main process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.worker import state
from celery.worker.request import Request, create_request_cls
from kombu.utils.imports import symbol_by_name

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = [
    "OpenRequest",
    "ended_by",
    "fetched_requests",
    "has_default_request",
    "lost_worker",
    "request_for",
    "running_requests",
]

_REQUEST = "celery.worker.request:Request"


@relies_on(
    Name(f"{_REQUEST}.request_dict"),
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
    Name(f"{_REQUEST}.acknowledge"),
    Name(f"{_REQUEST}.reject", takes=("requeue",)),
    Name(f"{_REQUEST}.send_event", takes=("type",)),
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
    Name("celery.app.task:Task.Request", used_by="celery.worker.strategy:default"),
    part=Part.WORKER,
    is_promise=False,
)
def has_default_request(task: Any, path: str) -> bool:
    """Whether a task's deliveries are requests of the class at *path*, and of no other.

    Reads ``Task.Request``.  Checked on Celery 5.6.3 and 5.7.0.  Without it a class of the user's is
    not asked of what the processes of a pool take by themselves.
    """
    return task.Request in (path, path.replace(":", ".")) or task.Request is symbol_by_name(path)


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
    does.  Checked on Celery 5.6.3 and 5.7.0.  Without
    it nobody ends the attempt of a process that died while it took its own messages.
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


@relies_on(Name("billiard.exceptions:TimeLimitExceeded"), part=Part.PREFORK)
def ended_by(error: Exception) -> ExceptionInfo:
    """Return what billiard tells of a job that has ended by an error of its own, such as
    ``TimeLimitExceeded``.

    Makes an ``ExceptionInfo`` with that error.  Checked on billiard 4.3.2.  Without it nobody
    stores the failure of a task that ran for too long in a shift.
    """
    try:
        raise error
    except Exception:
        return ExceptionInfo()


@relies_on(Name("billiard.exceptions:WorkerLostError"), part=Part.PREFORK)
def lost_worker(error: BaseException) -> ExceptionInfo:
    """Return what billiard tells of a job whose process died, with *error* as the reason.

    Makes an ``ExceptionInfo`` with a ``WorkerLostError``.  Checked on billiard 4.3.2.  Without it a
    task is taken for failed that was broken off.
    """
    return ended_by(WorkerLostError(f"Worker exited prematurely: {error!r}"))


_STATE = "celery.worker.state"


@relies_on(
    Name(f"{_STATE}:active_requests"),
    Used(by="celery.worker.request:Request.on_accepted", name="task_accepted"),
    part=Part.WORKER,
)
def running_requests() -> list[Any]:
    """Return the requests that have begun.

    Reads ``celery.worker.state.active_requests``: nothing else tells what runs, with its message.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a worker does not know what it runs.
    """
    return _listed(state.active_requests)


@relies_on(Name(f"{_STATE}:reserved_requests"), part=Part.WORKER)
def fetched_requests() -> list[Any]:
    """Return the requests that wait for the pool, or have begun.

    Reads ``celery.worker.state.reserved_requests``, as nothing else tells it.  Checked on Celery
    5.6.3 and 5.7.0.  Without it a worker does not know what it has fetched.
    """
    return _listed(state.reserved_requests)


def _listed(found: Iterable[Any]) -> list[Any]:
    while True:
        try:
            return list(found)
        except RuntimeError:
            # In a pool of threads each of them adds what it begins.
            continue
