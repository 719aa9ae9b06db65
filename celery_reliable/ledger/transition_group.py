"""The base of the classes that make up the ledger."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from celery_reliable.ledger.answers import Answer, Troubled
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.calls import Calls
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import Step, Together, encoded

__all__ = ["STOPPING_LOOK_MS", "TransitionGroup", "line_of", "slots"]

A = TypeVar("A", bound=Answer)

#: When the sweeper looks whether a called-off attempt was stopped; usually its worker has told.
STOPPING_LOOK_MS = 10_000


def slots(object_key: str, places: int) -> list[str]:
    """Return what the places of an object are called; each has a lock of its own.

    The first is called as the object: it is the lock of an object that one task has at a time.
    """
    return [object_key, *(f"{object_key}#{n}" for n in range(2, places + 1))]


def line_of(object_key: str) -> str:
    """Return the object whose place this is: places but the first have a number behind it."""
    return object_key.partition("#")[0]


class TransitionGroup:
    """Some of the ledger's transitions.  A method is named after its script."""

    connector: Connector
    keys: Keys
    calls: Calls
    #: The generation of the last record; learned from the first refusal.
    generation: str
    #: How many tasks that have ended are kept.
    keep_ended: int
    #: One in so many is kept though nothing happened to it; 0: none.
    sample_one_in: int
    _caller: Caller

    def _end(
        self,
        make: Callable[..., Step[A]],
        task_id: str,
        outcome: str,
        by: str,
        *,
        is_kept: bool = False,
        along: Step[Any] | None = None,
        patience_seconds: float | None = None,
    ) -> A:
        """Run a script that ends a task, and keeps for people what happened to it.

        *make* returns the call.  Most tasks have no history.  Of these the script is not told what
        to note, so that they pay nothing for it.  A script that was not told, and finds a history,
        changes nothing and answers Troubled, and is called again.  *along*: a step that goes along
        with the first call.
        """
        one_in = self.sample_one_in
        is_kept = is_kept or (one_in > 0 and zlib.crc32(encoded(task_id)) % one_in == 0)
        about: dict[str, Any] = {"outcome": outcome, "by": by, "most": self.keep_ended}
        step = make(**about) if is_kept else make()
        answer = self._caller.run(
            step if along is None else Together(step, along), patience_seconds
        )
        if isinstance(answer, Troubled):
            answer = self._caller.run(make(**about), patience_seconds)
        return answer
