"""What the ledger answers to who operates it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from celery_reliable.ledger.answers.base import Answer

__all__ = [
    "Audited",
    "Grouped",
    "InForce",
    "Noted",
    "Ordered",
    "Resumed",
    "Told",
]


@final
class Audited(Answer):
    """What an operator does is noted."""


@final
class Noted(Answer):
    """What happened is noted, or at least counted."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Grouped(Answer):
    """The index of groups says of so many letters what it did not say before."""

    added: int
    removed: int


@final
class Ordered(Answer):
    """The order is given."""


@final
class InForce(Answer):
    """The order still holds, and its time is not over."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Resumed(Answer):
    """The order is over, and so many of the tasks that it had parked are let go."""

    count: int
    #: There may be others, which are let go by the next call.
    is_more: bool


@final
@dataclass(frozen=True, repr=False, eq=False)
class Told(Answer):
    """The worker, the *owner*, hears with its next beat what it is to stop."""

    owner: str
