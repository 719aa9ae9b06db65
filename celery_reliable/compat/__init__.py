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
from typing import TYPE_CHECKING

from celery_reliable.compat import relied
from celery_reliable.compat.relied import Part
from celery_reliable.exceptions import ConfigurationWarning

if TYPE_CHECKING:
    from celery_reliable.findings import Finding

__all__ = ["Part", "missing", "require"]

#: The modules that processes need which only publish.  When they are imported, modules register
#: what they rely on.
_OF_PRODUCERS = {
    Part.PRODUCER: ["amqp", "app", "connection", "result_consumer"],
    Part.REDIS_PRODUCER: ["kombu"],
}


def missing(parts: Iterable[Part]) -> Iterator[Finding]:
    """Yield what *parts* rely on and what is installed does not have."""
    wanted = set(parts)
    for part in wanted:
        for name in _OF_PRODUCERS.get(part) or [one.name for one in iter_modules(__path__)]:
            import_module(f"{__name__}.{name}")
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
