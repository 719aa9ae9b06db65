"""What the ledger answers of tasks whose rate is limited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.model import Due

__all__ = ["Another", "Free", "ParkedUntil", "Ripe"]


@final
@dataclass(frozen=True, repr=False, eq=False)
class Another(Answer):
    """Another worker looks after the lines of limited tasks."""

    wait_ms: int


@final
class Free(Answer):
    """A task of a limited rate may ask for its claim."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class ParkedUntil(Answer):
    """A task of a limited rate is parked until its moment, in ms of the server's clock."""

    due_ms: int


@final
@dataclass(frozen=True, repr=False, eq=False)
class Ripe(Answer):
    """The limited tasks whose moment has come, and the ms until the next one."""

    wait_ms: int
    dues: tuple[Due, ...]
