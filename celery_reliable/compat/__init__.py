"""Every hook into the internals of Celery, kombu, billiard and redis-py, and nothing else.

A module for each of whom is touched, and a function (or a class to derive from) for each hook.  Its
docstring says what is read or replaced, why there is no public way, on which releases that was
checked, and what breaks without it.  `check` finds out whether what is installed still has all that
they rely on; nobody outside of this folder touches a private name of somebody else's.
"""

from __future__ import annotations

import warnings
from functools import cache

from celery_reliable.compat import (
    amqp,
    app,
    backend,
    consumer,
    controller,
    kombu,
    logging,
    notes,
    pool,
    redis,
    request,
    tracer,
)
from celery_reliable.compat.relied import Part, missing
from celery_reliable.exceptions import ConfigurationWarning, raise_for

__all__ = ["Part", "check", "require"]

#: They have said what they rely on as they were imported.
_MODULES = (
    amqp, app, backend, consumer, controller, kombu, logging, notes, pool, redis, request, tracer,
)  # fmt: skip

check = missing


@cache
def require(part: Part) -> None:
    """Raise ConfigurationError when *part* relies on something that is not there, and a promise
    with it; warn (ConfigurationWarning) of the rest.  Looks once in a process.
    """
    for finding in raise_for(missing([part])):
        warnings.warn(f"{finding.message} {finding.hint}", ConfigurationWarning, stacklevel=3)
