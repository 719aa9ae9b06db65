"""Every hook into the internals of Celery, kombu, billiard and redis-py.

A module is about one thing that is touched, and has a function (or a class to derive from) for
each hook. Its docstring says what is read or replaced, why there is no public way, on which
releases that was checked, and what breaks without it. `missing` finds out whether the installed
releases still have all that the hooks need. No other module of the package uses a private name
of another package.
"""

from __future__ import annotations

import warnings
from functools import cache

from celery_reliable.compat import (
    amqp,
    app,
    backend,
    connection,
    consumer,
    controller,
    kombu,
    logging,
    notes,
    pool,
    redis,
    request,
    result_consumer,
    tracer,
)
from celery_reliable.compat.relied import Part, missing
from celery_reliable.exceptions import ConfigurationWarning
from celery_reliable.findings import raise_for

__all__ = ["Part", "missing", "require"]

#: When they are imported, they register what they rely on.
_MODULES = (
    amqp, app, backend, connection, consumer, controller, kombu, logging, notes, pool, redis,
    request, result_consumer, tracer,
)  # fmt: skip


@cache
def require(part: Part) -> None:
    """Check the hooks of *part*, once in a process. Raises ConfigurationError if a name is
    missing without which a promise breaks, and warns (ConfigurationWarning) of other missing
    names.
    """
    for finding in raise_for(missing([part])):
        warnings.warn(f"{finding.message} {finding.hint}", ConfigurationWarning, stacklevel=3)
