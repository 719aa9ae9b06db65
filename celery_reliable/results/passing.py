"""Which errors of storing an outcome, or of sending what follows from it, pass by themselves."""

from __future__ import annotations

from typing import Any

from celery_reliable.redis_io import refuses_writes

__all__ = ["may_pass"]

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
