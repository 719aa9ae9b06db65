"""The requests that Celery's worker holds just now, for any thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery.worker import state

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = ["fetched_requests", "running_requests"]

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
