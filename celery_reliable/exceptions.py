"""What the package raises.

Every class has one root, and its docstring's first paragraph is its default message. Facts are
attributes, each with a default: a result backend that stores only the message of an exception
(JSON does) can still rebuild it, with the facts missing.

Outcomes are not exceptions: that another attempt is current, or that a task has ended, is an
answer of the ledger.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from datetime import datetime
from typing import Any

__all__ = [
    "ConfigurationError",
    "ConfigurationWarning",
    "LedgerForbidden",
    "LedgerRefused",
    "LedgerUnavailable",
    "NotPublished",
    "ObjectBusy",
    "ObjectIdError",
    "PublishUnknown",
    "ReliableError",
    "RowTaken",
    "TaskExists",
    "UnknownDeadLetter",
    "one_line",
    "refuse",
    "said",
]


class ReliableError(Exception):
    """Something that celery_reliable does for a task went wrong."""

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        # A subclass of the user's may have no docstring.
        paragraph = (inspect.getdoc(type(self)) or type(self).__name__).partition("\n\n")[0]
        super().__init__(" ".join(paragraph.split()) if message is None else message)
        vars(self).update(facts)


class ConfigurationError(ReliableError):
    """The settings of celery_reliable, or of a reliable task, cannot work.

    Attributes:
        problems: one sentence or more for each thing that is wrong, with what to change.
    """

    problems: tuple[str, ...] = ()

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.problems = self.problems or ((message,) if message else ())


def refuse(problems: Iterable[str], where: str = "") -> None:
    """Raise one ConfigurationError for all *problems*, if there are any; it begins with *where*."""
    found = tuple(problems)
    if found:
        raise ConfigurationError(where + "\n\n".join(found), problems=found)


class ConfigurationWarning(UserWarning):
    """Something about a task is probably not meant as it was written."""


class ObjectIdError(ReliableError, ValueError):
    """The arguments of a call do not give the object id that the task asks for.

    Attributes:
        task_name: the task that was called.
    """

    task_name: str | None = None


class ObjectBusy(ReliableError):
    """Another task holds this object, and the task is set to fail in that case.

    Attributes:
        holder: the id of the task that held it at that moment; it may have ended since.
    """

    holder: str | None = None


class LedgerUnavailable(ReliableError):
    """The ledger's Redis could not be reached, or did not answer in time.

    Every transition may be repeated.

    Attributes:
        operation: the transition that was under way.
        is_undone: whether it is known that nothing was executed, as no server took the command;
            else nothing is known.
    """

    operation: str | None = None
    is_undone: bool = False


class LedgerRefused(ReliableError):
    """The ledger's Redis answered with an error instead of executing the command.

    It is out of memory, a read-only replica, lacks a permission, or is not fit to hold a ledger.
    Repeating does not help before that is changed.

    Attributes:
        operation: the transition that was refused.
        reply: the server's own words.
    """

    operation: str | None = None
    reply: str | None = None


class LedgerForbidden(LedgerRefused):
    """The ledger's Redis does not let its user run a command, or name a key.

    Calls that wait for the ledger without a limit do not wait for this, as it passes only when an
    operator gives the right back.  The operation may have been done in part.
    """


class NotPublished(ReliableError):
    """The task was not published: the broker or the ledger's Redis is away or may not write.

    It is raised as a `kombu.exceptions.OperationalError` too, which is what Celery raises when the
    broker is away.

    Attributes:
        task_id: the task that will not run.
    """

    task_id: str | None = None


class PublishUnknown(ReliableError):
    """Sending the task failed and its record could not be withdrawn: it may run or not.

    Publishing it again under the same task id is safe, as one id is one task while it lives. A
    new id may run the work twice. It is raised as a `kombu.exceptions.OperationalError` too.

    Attributes:
        task_id: the task in doubt.
    """

    task_id: str | None = None


class RowTaken(ReliableError):
    """The row beside the task is a later attempt's, or waits for another task.

    Let it pass: the task ends without an error, as nothing that it does counts any more.

    Attributes:
        holder: the id of the task that the row waits for.
    """

    holder: str | None = None


class TaskExists(ReliableError):
    """There is a task of this id already: another one, or the call is set to be refused then.

    Attributes:
        task_id: the id, which is that other task's.
        state: where that stands: "waiting", "queued", "running", "waiting" or "dead".
        since: since when, by the clock of the ledger's Redis.
    """

    task_id: str | None = None
    state: str | None = None
    since: datetime | None = None


class UnknownDeadLetter(ReliableError, LookupError):
    """There is no dead letter with this task id.

    It was replayed, discarded, or removed by age or count, or it never was one.

    Attributes:
        task_id: the id that was asked for.
    """

    task_id: str | None = None


def said(error: object) -> str:
    """Return what an exception says, also when its own `__str__` raises."""
    try:
        return str(error)
    except Exception as exc:
        return f"<its str() raised {type(exc).__name__}>"


def one_line(error: object) -> str:
    """Return an exception as one line of bounded length."""
    return " ".join(f"{type(error).__name__}: {said(error)}".split())[:500]
