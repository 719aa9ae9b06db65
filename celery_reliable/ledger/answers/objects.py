"""What the ledger answers of the objects that tasks hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from celery_reliable.ledger.answers.base import Answer

__all__ = [
    "KeptFor",
    "Locked",
    "LockedBy",
    "NotHeld",
    "OtherObject",
    "Stopping",
    "Unlocked",
]


@final
@dataclass(frozen=True)
class KeptFor(Answer):
    """The object is kept for a task that succeeded."""

    word = "kept"
    task_id: str


@final
class Locked(Answer):
    """The object is held by who asked."""


@final
@dataclass(frozen=True)
class LockedBy(Answer):
    """Another task has the object; `value` is "<attempt>:<id>"."""

    word = "held"
    value: str

    @property
    def task_id(self) -> str:
        """The task that has it."""
        return self.value.partition(":")[2]


@final
class NotHeld(Answer):
    """The object is not this attempt's."""


@final
@dataclass(frozen=True)
class OtherObject(Answer):
    """The task has locked another object than the caller gave.  Nothing was changed.

    Only `call_freeing_lock` sees it, and calls again.
    """

    word = "object"
    object_key: str


@final
@dataclass(frozen=True)
class Stopping(Answer):
    """The object's task is over, and that worker has still to stop an attempt of it."""

    worker: str


@final
class Unlocked(Answer):
    """The object is free."""
