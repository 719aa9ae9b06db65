"""What the ledger answers of the objects that tasks hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from celery_reliable.ledger.answers.base import Answer

__all__ = [
    "Full",
    "KeptFor",
    "Locked",
    "LockedBy",
    "Next",
    "Nobody",
    "NotHeld",
    "OtherObject",
    "OwnPlace",
    "Placed",
    "Sent",
    "Standing",
    "StillStopping",
    "Stopping",
    "Unlocked",
]


@final
@dataclass(frozen=True, repr=False, eq=False)
class Full(Answer):
    """There is no place for who asked: the places are others', or others stand in the line before.

    `values`: "<attempt>:<id>" of each place, empty for a free one; `before`: the ids of who stands
    before.  One a line each.
    """

    word = "held"
    values: str
    before: str

    @property
    def task_id(self) -> str:
        """One that is in the way."""
        held = next(filter(None, self.values.split("\n")), "")
        return self.before.partition("\n")[0] or held.partition(":")[2]


@final
@dataclass(frozen=True, repr=False, eq=False)
class KeptFor(Answer):
    """The object is kept for a task that succeeded."""

    word = "kept"
    task_id: str


@final
class Locked(Answer):
    """The object is held by who asked."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class LockedBy(Answer):
    """Another task has the object; `value` is "<attempt>:<id>"."""

    word = "held"
    value: str

    @property
    def task_id(self) -> str:
        """The task that has it."""
        return self.value.partition(":")[2]


@final
@dataclass(frozen=True, repr=False, eq=False)
class Next(Answer):
    """A place may be free for that task, which stands in the line first."""

    task_id: str


@final
class Nobody(Answer):
    """Nobody stands in the line, or there is no place for who does."""


@final
class NotHeld(Answer):
    """The object is not this attempt's."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class OtherObject(Answer):
    """The task has locked another object than the caller gave.  Nothing was changed.

    Only `call_freeing_lock` sees it, and calls again.
    """

    word = "object"
    object_key: str


@final
@dataclass(frozen=True, repr=False, eq=False)
class OwnPlace(Answer):
    """The task has that place, of which the caller did not know.  Nothing was changed.

    Only who takes a lock or a place sees it, and calls again.
    """

    word = "object"
    object_key: str


@final
class Sent(Answer):
    """The task has its place, and its message was sent."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Placed(Answer):
    """The attempt has a place of its object; the place's name is that of a lock."""

    object_key: str


@final
@dataclass(frozen=True, repr=False, eq=False)
class Standing(Answer):
    """The task is parked, and stands in the line of its object.

    `before`: one that is before it; empty if a repeated call is answered.
    """

    before: str


@final
@dataclass(frozen=True, repr=False, eq=False)
class StillStopping(Answer):
    """The task that has a place is over, and that worker has still to stop an attempt of it."""

    word = "stopping"
    task_id: str
    worker: str


@final
@dataclass(frozen=True, repr=False, eq=False)
class Stopping(Answer):
    """The object's task is over, and that worker has still to stop an attempt of it."""

    worker: str


@final
class Unlocked(Answer):
    """The object is free."""
