"""Attributes that the package sets on objects of other packages, all named ``reliable_…``."""

from __future__ import annotations

from typing import Any

__all__ = ["note", "noted"]

_BEGINS = "reliable_"


def note(thing: Any, name: str, value: Any) -> None:
    """Note something on somebody else's object, under a name that begins with ``reliable_``: on a
    message (its early claim, and under which lease it was taken), a worker and an app (our part of
    them), an error (that nothing was done), or a handler (that it is ours).  Celery hands these on,
    and has no place for what belongs to them.
    """
    setattr(thing, _BEGINS + name, value)


def noted(thing: Any, name: str) -> Any:
    """Return what was noted on an object under a name; None for what was not."""
    return getattr(thing, _BEGINS + name, None)
