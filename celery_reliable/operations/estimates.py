"""How many dead letters are meant, in a bounded time."""

from __future__ import annotations

from dataclasses import replace

from celery_reliable.operations.bulk import Bulk, Chosen, Done
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.filters import OF_GROUPS
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
    """Return how many are meant, at most *limit*, as a dry run: all, a whole group, and what fits a
    filter that asks for what groups have in common, by their index; others by looking, for about
    *seconds*.  Unless ``is_whole`` there are more.
    """
    count = None
    if not chosen.ids and chosen.before_ms is None and not chosen.cursor:
        count = _indexed(letters, pages, chosen)
    if count is None:
        return bulk.count(chosen, limit=limit, seconds=seconds)
    begun = bulk.begun(chosen, seconds)
    is_whole = count <= limit and not begun.problem
    return replace(begun, done=min(count, limit), is_dry_run=True, is_whole=is_whole)


def _indexed(letters: DeadLetters, pages: LetterPages, chosen: Chosen) -> int | None:
    """Return how many the indexes have; None where they do not tell."""
    asked = set(chosen.wanted.given)
    if not asked:
        return pages.count(chosen.group) if chosen.group else letters.count()
    if chosen.group or asked - OF_GROUPS:
        return None
    found = pages.groups(chosen.wanted)
    return sum(one.count for one in found.groups) if found.is_complete else None
