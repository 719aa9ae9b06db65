"""Which tasks and dead letters an operator means."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Annotated

from celery_reliable.leases import matches, nodename_of
from celery_reliable.model import Group, Reason
from celery_reliable.operations.operation import Param

__all__ = ["EVERYTHING", "OF_GROUPS", "OF_LIVING", "Filter", "Subject"]

#: Parts of a filter that fit all letters of a group, or none.
OF_GROUPS = ("task", "reason", "exception")
#: Parts that are offered for tasks that live.
OF_LIVING = ("task", "queue", "worker", "older_than_seconds")


@dataclass(frozen=True)
class Subject:
    """What a filter looks at, of a task that lives or of a dead letter."""

    task_id: str
    name: str = ""
    queue: str = ""
    #: Why it was buried; empty for a task that lives.
    reason: str = ""
    #: Type and text, as a letter has them: "ValueError: no such customer".
    exception: str = ""
    object_id: str = ""
    #: Those that ran it, or run it.
    workers: tuple[str, ...] = ()
    #: When it was buried, or published; the server's ms.
    at_ms: int = 0


@dataclass(frozen=True)
class Filter:
    """All that is given has to fit; a filter of nothing fits everything.

    ``task``, ``queue``, ``exception`` (its type) and ``worker`` may be patterns as the shell has
    them (``billing.*``); a worker is named with or without its host.  No part looks into arguments
    but ``object_id``.  Ages are seconds since the burial, or since the publication of a task that
    lives.
    """

    task: Annotated[
        str | None,
        Param("The task's name, or a shell pattern: 'billing.*'.", max_length=1000),
    ] = None
    queue: Annotated[
        str | None, Param("The queue that the message was sent to, or a pattern.", max_length=1000)
    ] = None
    reason: Annotated[
        str | None,
        Param("Why the task became a dead letter.", choices=tuple(one.value for one in Reason)),
    ] = None
    exception: Annotated[
        str | None, Param("The type of the exception, or a pattern.", max_length=1000)
    ] = None
    object_id: Annotated[str | None, Param("The id of the object.", max_length=1000)] = None
    worker: Annotated[
        str | None,
        Param(
            "A worker that ran the task, or a pattern; the host may be left out.", max_length=1000
        ),
    ] = None
    older_than_seconds: Annotated[
        float | None,
        Param(
            "The least age.",
            ge=0,
            le=1e10,
            is_duration=True,
        ),
    ] = None
    newer_than_seconds: Annotated[
        float | None, Param("The greatest age.", ge=0, le=1e10, is_duration=True)
    ] = None

    def matches(self, subject: Subject, now_ms: int) -> bool:
        """Whether *subject* fits, at the ledger's time *now_ms*."""
        age_seconds = (now_ms - subject.at_ms) / 1000
        exception_type = subject.exception.partition(":")[0].strip()
        return (
            all(
                wanted is None or fnmatchcase(found, wanted)
                for wanted, found in (
                    (self.task, subject.name),
                    (self.queue, subject.queue),
                    (self.exception, exception_type),
                )
            )
            and self.reason in (None, subject.reason)
            and self.object_id in (None, subject.object_id)
            and (
                self.worker is None
                # By its name, or by the whole id that tells one start of it from another.
                or any(
                    matches(self.worker, nodename_of(one)) or fnmatchcase(one, self.worker)
                    for one in subject.workers
                )
            )
            and (self.older_than_seconds is None or age_seconds >= self.older_than_seconds)
            and (self.newer_than_seconds is None or age_seconds <= self.newer_than_seconds)
        )

    def fits_group(self, group: Group) -> bool:
        """Whether letters of *group* may fit, by what they have in common."""
        common = Filter(**{name: getattr(self, name) for name in OF_GROUPS})
        subject = Subject("", group.task, "", group.reason, group.exception)
        return common.matches(subject, 0)

    @property
    def given(self) -> dict[str, str | float]:
        """What is asked for, by its name; empty when everything fits."""
        return {
            one.name: value
            for one in fields(self)
            if (value := getattr(self, one.name)) is not None
        }


#: The filter of nothing.
EVERYTHING = Filter()
