"""The errors of a publication that failed, and for how long it is tried.

Callers of Celery handle kombu's OperationalError, so each of these is one too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from kombu.exceptions import OperationalError

from celery_reliable import exceptions
from celery_reliable.exceptions import TaskExists, said
from celery_reliable.ledger import answers
from celery_reliable.model import State, TaskRef

__all__ = ["exists", "not_sent", "outages", "retry_seconds"]


class NotPublished(exceptions.NotPublished, OperationalError):
    __doc__ = exceptions.NotPublished.__doc__


class PublishUnknown(exceptions.PublishUnknown, OperationalError):
    __doc__ = exceptions.PublishUnknown.__doc__


def exists(ref: TaskRef, found: answers.InUse | answers.Anothers) -> TaskExists:
    """Return the error of a publication whose id is in use."""
    since = datetime.fromtimestamp(found.since_ms / 1000, tz=timezone.utc)
    what = "is a dead letter" if found.state == State.DEAD.value else f"is {found.state}"
    since_when = f"{what} since {since:%Y-%m-%d %H:%M:%S} UTC"
    why = (
        f"its id is that of a task {found.name}, which {since_when}. An id is one task's."
        if isinstance(found, answers.Anothers)
        else f"there is one of this id, which {since_when} (if_exists='refuse')."
    )
    return TaskExists(
        f"Task {ref.name}[{ref.id}] was not published: {why}",
        task_id=ref.id,
        state=found.state,
        since=since,
    )


def not_sent(ref: TaskRef, why: Exception) -> NotPublished:
    """Return the error of a publication that failed, and of which no record stays."""
    return NotPublished(f"Task {ref.name}[{ref.id}] was not published: {said(why)}", task_id=ref.id)


def outages(connection: Any) -> tuple[type[BaseException], ...]:
    """Return what a producer raises when its broker is away: what Celery makes an OperationalError,
    and that.
    """
    return (
        OperationalError,
        *connection.recoverable_connection_errors,
        *connection.recoverable_channel_errors,
    )


def retry_seconds(options: Mapping[str, Any]) -> float:
    """Return for how many seconds kombu retries a publication with these options.

    They come from Celery's setting `task_publish_retry_policy` or from the call.  The time that the
    attempts themselves take is not counted.
    """
    if not options.get("retry"):
        return 0.0
    policy = options.get("retry_policy") or {}
    # Kombu takes no time for no limit, too.
    limit, most = float(policy.get("timeout") or math.inf), policy.get("max_retries", 3)
    if most is None:
        return limit
    start, step = policy.get("interval_start", 0), policy.get("interval_step", 0.2)
    highest = policy.get("interval_max", 0.2)
    return min(limit, float(sum(min(start + step * n, highest) for n in range(most))))
