"""Attributes that the package sets on objects of other packages, all named ``reliable_…``."""

from __future__ import annotations

from typing import Any

from celery_reliable.compat.relied import Name, Part, relies_on

__all__ = ["note", "noted"]

_BEGINS = "reliable_"


@relies_on(
    Name("kombu.message:Message"),
    Name("celery.app.base:Celery"),
    part=Part.PRODUCER,
)
def note(thing: Any, name: str, value: Any) -> None:
    """Note something on somebody else's object, under a name that begins with ``reliable_``.

    Sets an attribute of a message (its early claim, and under which lease it was taken), of a
    worker and of an app (our part of them), of an error (that nothing was done), or of a handler
    (that it is ours): Celery hands these on, and has no place for what belongs to them.  Checked on
    Celery 5.6.3 and 5.7.0, kombu 5.7.0, redis-py 6.4.0 and 8.1.0.  Without it nobody knows who has
    claimed a message.
    """
    setattr(thing, _BEGINS + name, value)


def noted(thing: Any, name: str) -> Any:
    """Return what was noted on an object under a name; None for what was not."""
    return getattr(thing, _BEGINS + name, None)
