"""What the ledger answers of the objects that tasks hold."""

from __future__ import annotations

from typing import final

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.model import Due

__all__ = [
    "Another",
    "Assigned",
    "BegunRun",
    "Diverted",
    "Free",
    "Full",
    "KeptFor",
    "Locked",
    "LockedBy",
    "Moved",
    "NamesOthers",
    "Next",
    "Nobody",
    "NotHeld",
    "OtherObject",
    "OwnPlace",
    "ParkedUntil",
    "Placed",
    "Ripe",
    "Sent",
    "Standing",
    "StillStopping",
    "StillWaiting",
    "Stopping",
    "Unlisted",
    "Unlocked",
    "Unplaced",
    "Waits",
    "Woken",
]


@final
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
class KeptFor(Answer):
    """The object is kept for a task that succeeded."""

    word = "kept"
    task_id: str


@final
class Locked(Answer):
    """The object is held by who asked."""


@final
class LockedBy(Answer):
    """Another task has the object; `value` is "<attempt>:<id>"."""

    word = "held"
    value: str

    @property
    def task_id(self) -> str:
        """The task that has it."""
        return self.value.partition(":")[2]


@final
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
class OtherObject(Answer):
    """The task has locked another object than the caller gave.  Nothing was changed.

    Only `call_freeing_lock` sees it, and calls again.
    """

    word = "object"
    object_key: str


@final
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
class Placed(Answer):
    """The attempt has a place of its object; the place's name is that of a lock."""

    object_key: str


@final
class Standing(Answer):
    """The task is parked, and stands in the line of its object.

    `before`: one that is before it; empty if a repeated call is answered.
    """

    before: str


@final
class StillStopping(Answer):
    """The task that has a place is over, and that worker has still to stop an attempt of it."""

    word = "stopping"
    task_id: str
    worker: str


@final
class Stopping(Answer):
    """The object's task is over, and that worker has still to stop an attempt of it."""

    worker: str


@final
class Unlocked(Answer):
    """The object is free."""


@final
class Another(Answer):
    """Another worker looks after the lines of limited tasks."""

    wait_ms: int


@final
class Free(Answer):
    """A task of a limited rate may ask for its claim."""


@final
class ParkedUntil(Answer):
    """A task of a limited rate is parked until its moment, in ms of the server's clock."""

    due_ms: int


@final
class Ripe(Answer):
    """The limited tasks whose moment has come, and the ms until the next one."""

    wait_ms: int
    dues: tuple[Due, ...]


@final
class Assigned(Answer):
    """A member of a run has this worker, and no other has."""

    worker: str


@final
class BegunRun(Answer):
    """The run is noted."""


@final
class Diverted(Answer):
    """The task is due, to be sent to somebody who may run it."""


@final
class Moved(Answer):
    """Other workers may run the task from now on."""


@final
class NamesOthers(Answer):
    """An operator has named other workers while the attempt ran."""

    word = "moved"
    #: Which, as text; empty: none since the attempt was told.
    named: str


@final
class StillWaiting(Answer):
    """The task waits for a worker."""

    word = "waiting"


@final
class Unlisted(Answer):
    """The queue is forgotten."""


@final
class Unplaced(Answer):
    """The task waits for a worker that may run it."""

    word = "parked"
    #: It did not before.
    is_new: bool


@final
class Waits(Answer):
    """Each worker that a member of a run could have has another member."""


@final
class Woken(Answer):
    """The task is due, as a worker is there that may run it."""
