"""What the ledger answers to who operates it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from celery_reliable.ledger.answers.base import Answer

__all__ = [
    "Audited",
    "Grouped",
    "Noted",
]


@final
class Audited(Answer):
    """What an operator does is noted."""


@final
class Noted(Answer):
    """What happened is noted, or at least counted."""


@final
@dataclass(frozen=True)
class Grouped(Answer):
    """The index of groups says of so many letters what it did not say before."""

    added: int
    removed: int
