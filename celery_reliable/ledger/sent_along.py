"""A step that goes to the server along with another, in one script."""

from __future__ import annotations

from typing import Any

from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.transitions import A, Step, Together

__all__ = ["SentAlong"]


class SentAlong:
    """Runs steps, and lets another go along with the first of them, right behind it."""

    def __init__(self, caller: Caller, other: Step[Any]) -> None:
        self._caller = caller
        self._other: Step[Any] | None = other

    def run(self, step: Step[A], patience_seconds: float | None = None) -> A:
        """As `Caller.run` does."""
        if self._other is None:
            return self._caller.run(step, patience_seconds)
        both = Together(step, self._other)
        self._other = None
        return self._caller.run(both, patience_seconds)
