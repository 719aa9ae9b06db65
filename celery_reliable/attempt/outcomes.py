"""How a delivery ends other than by its body: what Celery's tracer would have returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.exceptions import Ignore

from celery_reliable.compat.tracer import Traced, Tracer, as_traced, tracer_of

__all__ = ["NotBegun", "ended", "instead", "raising", "returning"]


class NotBegun(Ignore):
    """A delivery that was no attempt, and is none that ended."""


def ended(error: Exception, state: str) -> Traced:
    """Return what Celery's tracer returns when a body raises *error*, in *state*."""
    return as_traced(error, state)


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
    return tracer_of(task, twin)


def _no_hook(*args: Any, **kwargs: Any) -> None:
    """Stand in for a hook of the user's, which is not to be called."""


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
