"""How many dead letters are meant, in a bounded time."""

from __future__ import annotations

from dataclasses import replace

from celery_reliable.operations.bulk import Bulk, Chosen, Done
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.groups import LetterPages

__all__ = ["estimated"]


def estimated(
    bulk: Bulk,
    letters: DeadLetters,
    pages: LetterPages,
    chosen: Chosen,
    limit: int,
    seconds: float,
) -> Done:
    """Return how many are meant, as a dry run: all, or a whole group, by their index; others by
    looking, for about *seconds* and at most up to *limit*.  Unless ``is_whole`` there are more.
    """
    if chosen.ids or chosen.wanted.given:
        return bulk.count(chosen, limit=limit, seconds=seconds)
    begun = bulk.count(replace(chosen, cursor=""), limit=0, seconds=seconds)
    count = pages.count(chosen.group) if chosen.group else letters.count()
    return replace(begun, done=count, is_whole=not begun.problem, cursor="")
