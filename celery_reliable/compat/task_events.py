"""Celery's events of tasks: what its main process tells in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import get_pickled_exception
from kombu.utils.encoding import safe_repr, safe_str

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = ["event_of_end", "fields_of_received"]

_REQUEST = "celery.worker.request:Request"
_STRATEGY = "celery.worker.strategy:default"


@relies_on(
    *(Used(by=_STRATEGY, name=name) for name in ("argsrepr", "kwargsrepr", "root_id", "parent_id")),
    Used(by=f"{_REQUEST}.__init__", name="_argsrepr"),
    part=Part.PREFORK,
    is_promise=False,
)
def fields_of_received(name: str, headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``task-received`` tells of a task without ETA and expiry, by its message's
    headers.

    Does what Celery's strategy does, which has no function for it.  Checked on Celery 5.6.3 and
    5.7.0.  Without it monitors do not know the arguments of what processes take by themselves.
    """
    return {
        "uuid": headers["id"],
        "name": headers.get("shadow") or name,
        "args": headers.get("argsrepr", ""),
        "kwargs": headers.get("kwargsrepr", ""),
        "root_id": headers.get("root_id"),
        "parent_id": headers.get("parent_id"),
        "retries": headers.get("retries", 0),
        "eta": None,
        "expires": None,
    }


@relies_on(
    Name(f"{_REQUEST}.on_success", takes=("failed__retval__runtime",)),
    Name(f"{_REQUEST}.on_retry", takes=("exc_info",)),
    Kept("billiard.einfo:ExceptionWithTraceback.exc"),
    Name("celery.utils.serialization:get_pickled_exception", takes=("exc",)),
    part=Part.PREFORK,
    is_promise=False,
)
def event_of_end(outcome: tuple[int, Any, float]) -> tuple[str, dict[str, Any]] | None:
    """Return kind and fields of the event that tells of the end of a task, by what `run_as_prefork`
    has returned; None where Celery sends none.

    Does what Celery's request does in the main process, which has no function for it.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it monitors hold for running what has ended.
    """
    has_failed, value, runtime = outcome
    if not has_failed:
        return "task-succeeded", {"result": value, "runtime": runtime}
    # billiard unwraps it on the way to the main process.
    error = getattr(value.exception, "exc", value.exception)
    if isinstance(error, Ignore | Reject):
        return None
    if isinstance(error, Retry):
        told, kind = safe_repr(error.exc), "task-retried"
        return kind, {"exception": told, "traceback": safe_str(value.traceback)}
    told, kind = safe_repr(get_pickled_exception(error)), "task-failed"
    return kind, {"exception": told, "traceback": value.traceback}
