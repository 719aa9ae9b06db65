"""What the ledger answers of tasks that only some workers may run, and of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from celery_reliable.ledger.answers.base import Answer

__all__ = [
    "Assigned",
    "BegunRun",
    "Diverted",
    "Moved",
    "NamesOthers",
    "StillWaiting",
    "Unlisted",
    "Unplaced",
    "Waits",
    "Woken",
]


@final
@dataclass(frozen=True, repr=False, eq=False)
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
@dataclass(frozen=True, repr=False, eq=False)
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
@dataclass(frozen=True, repr=False, eq=False)
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
