"""Every hook into the internals of Celery, kombu, billiard and redis-py.

A module is about one thing that is touched, and has a function (or a class to derive from) for
each hook. Its docstring says what is read or replaced, why there is no public way, on which
releases that was checked, and what breaks without it. `missing` finds out whether the installed
releases still have all that the hooks need. No other module of the package uses a private name
of another package.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from celery_reliable.compat import relied
from celery_reliable.compat.relied import Part
from celery_reliable.exceptions import ConfigurationWarning

if TYPE_CHECKING:
    from celery_reliable.findings import Finding

__all__ = ["Part", "missing", "note", "noted", "require"]

#: The parts of processes that only publish.  They have imported what they need, and modules
#: register what they rely on as they are imported.
_OF_PRODUCERS = {Part.PRODUCER, Part.REDIS_PRODUCER}

#: What the names of attributes begin with that the package sets on objects of other packages.
_BEGINS = "reliable_"


def missing(parts: Iterable[Part]) -> Iterator[Finding]:
    """Yield what *parts* rely on and what is installed does not have."""
    wanted = set(parts)
    if wanted - _OF_PRODUCERS:
        for one in iter_modules(__path__):
            import_module(f"{__name__}.{one.name}")
    yield from relied.missing(wanted)


@cache
def require(part: Part) -> None:
    """Check the hooks of *part*, once in a process. Raises ConfigurationError if a name is
    missing without which a promise breaks, and warns (ConfigurationWarning) of other missing
    names.
    """
    found = list(missing([part]))
    if not found:
        return
    from celery_reliable.findings import raise_for

    for finding in raise_for(found):
        warnings.warn(f"{finding.message} {finding.hint}", ConfigurationWarning, stacklevel=2)


def note(thing: Any, name: str, value: Any) -> None:
    """Note something on somebody else's object, under a name that begins with ``reliable_``: on a
    message (the claim of its taking, and under which lease it was taken), a worker and an app (our
    part of them), an error (that nothing was done), or a handler (that it is ours).  Celery hands
    these on, and has no place for what belongs to them.
    """
    setattr(thing, _BEGINS + name, value)


def noted(thing: Any, name: str) -> Any:
    """Return what was noted on an object under a name; None for what was not."""
    return getattr(thing, _BEGINS + name, None)
