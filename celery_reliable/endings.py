"""How a delivery ends other than by its body: what Celery's tracer would have returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.app.trace import TraceInfo, build_tracer, trace_ok_t

from celery_reliable.exceptions import said

__all__ = ["Tracer", "ended", "instead", "one_line", "raising", "returning"]

Tracer = Callable[..., trace_ok_t]


def ended(error: Exception, state: str) -> trace_ok_t:
    """Return what Celery's tracer returns when a body raises *error*, in *state*."""
    try:
        raise error
    except Exception as exc:
        return trace_ok_t(ExceptionInfo(internal=True), TraceInfo(state, exc), 0.0, None)


def instead(task: Any, body: Callable[..., Any]) -> Tracer:
    """Return a tracer of *task* that runs *body* in its place, without the user's hooks.

    Results, callbacks, chains and chords are Celery's own work as always.
    """
    cls = type(task)
    quiet = dict.fromkeys(("before_start", "on_success", "after_return"), _no_hook)
    members = {
        "run": staticmethod(body),
        "__call__": staticmethod(body),
        "__trace__": None,
        **quiet,
    }
    twin = type(cls.__name__, (cls,), members)()
    tracer: Tracer = build_tracer(task.name, twin, task.app.loader, app=task.app)
    return tracer


def _no_hook(*args: Any, **kwargs: Any) -> None:
    """A hook of the user's that is not called."""


def returning(result: Any) -> Callable[..., Any]:
    """Return a body that returns *result*."""

    def body(*args: Any, **kwargs: Any) -> Any:
        return result

    return body


def raising(error: Exception) -> Callable[..., Any]:
    """Return a body that raises *error*."""

    def body(*args: Any, **kwargs: Any) -> Any:
        raise error

    return body


def one_line(error: object) -> str:
    """Return an exception as one line of bounded length."""
    return " ".join(f"{type(error).__name__}: {said(error)}".split())[:500]
