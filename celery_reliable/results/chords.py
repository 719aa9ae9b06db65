"""Chords: telling one of a member whose process died around its end.

Celery stores a member's result, then counts the member in its chord.  The process of the member
that is counted last claims for some seconds to be the one that sends the body.  One that dies in
between leaves a chord which waits for ever.
"""

from __future__ import annotations

import time
from typing import Any

from celery import states
from celery.app.task import Context

from celery_reliable.compat.chord_counts import chord_progress, counts_chords
from celery_reliable.log import logger
from celery_reliable.redis_io import refuses_writes

__all__ = [
    "may_pass",
    "tell_chord",
    "tell_chord_patiently",
]

#: What the drivers of databases raise when they have lost the server (PEP 249).  Kombu calls so
#: what a broker does not take, and with it this package what is not published.
_LOST_DATABASE = frozenset({"InterfaceError", "OperationalError"})


def may_pass(backend: Any, exc: BaseException | None) -> bool:
    """Whether an error of storing passes by itself."""
    if exc is None:
        return False
    names = {cls.__name__ for cls in type(exc).__mro__}
    return (
        # First: some backends mend their connection when they are asked.
        backend.exception_safe_to_retry(exc)
        or refuses_writes(exc)
        or isinstance(exc, OSError)
        or bool(names & _LOST_DATABASE)
        # Celery's own retries end in an error of Celery's, with the driver's as its cause.
        or may_pass(backend, exc.__cause__)
    )


#: A claim to send a chord's body lasts for a few attempts to connect to the broker.
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.5


def tell_chord(backend: Any, request: Context, state: str, result: Any) -> bool:
    """Count a member in its chord; return whether the chord needs nothing more of it.

    Celery counts each member once, so this may be repeated.  While it is False, all members are
    counted and the body is not sent: the process that claimed to send it is about to, or it is dead
    and its claim runs out.  Raises what the backend's driver raises.
    """
    # In other backends members do not tell their chord, or may not tell it twice.
    if not request.chord or not request.group or not counts_chords(backend):
        return True
    body_id = (request.chord.get("options") or {}).get("task_id")
    if body_id and backend.get_state(body_id) in states.READY_STATES:
        # The body was sent; only the chord's counts were not removed after it.
        return True
    backend.on_chord_part_return(request, state, result)
    progress = chord_progress(backend, request.group)
    return progress is None or progress[0] < progress[1]


def tell_chord_patiently(backend: Any, request: dict[str, Any], state: str, result: Any) -> None:
    """`tell_chord` until the chord needs nothing more; what goes wrong and does not pass is only
    logged.

    For the process in which Celery has just told the same, and whose chord an earlier attempt, or a
    call whose reply was lost, may have left half told: this is not worth doing the work again.
    """
    context = Context(request, called_directly=False)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if tell_chord(backend, context, state, result):
                return
        except Exception as exc:
            if not may_pass(backend, exc):
                logger.error("chord_given_up id=%s error=%s", context.id, exc)
                return
            deadline = time.monotonic() + _PATIENCE_SECONDS
        time.sleep(_POLL_SECONDS)
    error = TimeoutError(f"not within {_PATIENCE_SECONDS:g} seconds")
    logger.error("chord_given_up id=%s error=%s", context.id, error)
