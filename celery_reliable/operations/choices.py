"""Which dead letters an act is about, and what it has done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import shapes
from celery_reliable.operations.filters import Filter
from celery_reliable.operations.times import iso

__all__ = ["MOST_EXAMPLES", "Chosen", "Done", "Unclear"]

#: Ids that are given as examples.
MOST_EXAMPLES = 5


class Unclear(ReliableError, ValueError):
    """It is not clear which dead letters are meant."""


@dataclass(frozen=True)
class Chosen:
    """Which dead letters are meant: those with *ids*; or those of a *group*, or of all, that fit
    *wanted*.

    Only those are meant that were buried before *before_ms* of the server's clock, or before the
    act begins.  Who goes on with what was interrupted, and gives the time at which that began, does
    not take what was replayed and died again.  *cursor* is where an act of the same choice has
    ended: what was looked at is not looked at again.
    """

    ids: tuple[str, ...] = ()
    group: str = ""
    wanted: Filter = field(default_factory=Filter)
    before_ms: int | None = None
    cursor: str = ""

    @classmethod
    def of(
        cls,
        ids: tuple[str, ...] = (),
        group: str = "",
        wanted: Filter | None = None,
        *,
        is_all: bool = False,
        before_ms: int | None = None,
        cursor: str = "",
    ) -> Chosen:
        """Return what somebody means, who has to say it: nobody means all by saying nothing.

        Raises Unclear.
        """
        wanted = wanted or Filter()
        is_part = bool(group or wanted.given)
        if not (ids or is_part or is_all):
            raise Unclear("Which dead letters? Give ids, a group, a filter, or say all.")
        if (is_all and (ids or is_part)) or (ids and is_part):
            raise Unclear("Give ids, or all, or a group and a filter: one of them.")
        if ids and cursor:
            raise Unclear("A cursor does not go with ids: give the same ids again.")
        return cls(ids, group, wanted, before_ms, cursor)

    def as_dict(self) -> dict[str, Any]:
        """The same for the audit, without what is not asked for."""
        found: dict[str, Any] = {"filter": self.wanted.given} if self.wanted.given else {}
        if self.ids:
            found["ids"] = [*self.ids[:MOST_EXAMPLES]]
            found["ids_given"] = len(self.ids)
        if self.group:
            found["group"] = self.group
        return found or {"all": True}


@dataclass(frozen=True)
class Done:
    """What was done, or with a dry run what would be.

    Attributes:
        run: names the act in the audit.
        before_ms: only letters that were buried before it were meant.
        done: letters that were replayed or discarded; with a dry run, that fit.
        failed: that could not be: nobody can read them.
        gone: that somebody else replayed or discarded first, or that never were any.
        unsent: replayed letters whose message could not be sent; the sweeper sends it.
        is_dry_run: nothing was changed.
        is_whole: all that were meant were reached: neither *limit*, *seconds* nor a problem ended
            it.
        cursor: where to go on, with the same *before_ms*; empty: at the beginning, or nowhere.
        problem: what went wrong last; empty when nothing did.
        examples: some of their ids.
    """

    run: str
    before_ms: int
    done: int = 0
    failed: int = 0
    gone: int = 0
    unsent: int = 0
    is_dry_run: bool = False
    is_whole: bool = True
    cursor: str = ""
    problem: str = ""
    examples: tuple[str, ...] = ()

    def as_dict(self) -> shapes.Done:
        """The same as plain JSON values."""
        return {
            "run": self.run,
            "before": iso(self.before_ms),
            "done": self.done,
            "failed": self.failed,
            "gone": self.gone,
            "unsent": self.unsent,
            "is_dry_run": self.is_dry_run,
            "is_whole": self.is_whole,
            "cursor": self.cursor,
            "problem": self.problem,
            "examples": [*self.examples],
        }
