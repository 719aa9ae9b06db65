"""What is wrong with the runs of tasks whose workers were killed: the drill's, and the tests'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Protocol, TypeVar

__all__ = ["JudgedRun", "overlapping", "unfinished"]


class JudgedRun(Protocol):
    """One run of a task's body.  Times are of one clock."""

    @property
    def task_id(self) -> str:
        """Of what."""

    @property
    def started_at(self) -> float:
        """When it began."""

    @property
    def last_seen_at(self) -> float:
        """Until when it is proven to have gone on; it may have gone on a moment longer."""

    @property
    def has_finished(self) -> bool:
        """Whether its body came to its end."""


R = TypeVar("R", bound=JudgedRun)


def _last_seen(run: JudgedRun) -> float:
    return run.last_seen_at


def overlapping(runs: Sequence[R], until: Callable[[R], float] = _last_seen) -> list[tuple[R, R]]:
    """Return the pairs of which the later one began before the earlier was over.

    *runs* are in the order in which they began, of one task or of one object.  *until* says how
    long one counts: so long as it was seen.
    """
    return [
        (earlier, later)
        for earlier, later in combinations(runs, 2)
        if later.started_at < until(earlier)
    ]


def unfinished(published: Iterable[str], runs: Iterable[JudgedRun]) -> list[str]:
    """Return the ids of those that have no run which came to its end."""
    done = {run.task_id for run in runs if run.has_finished}
    return [task_id for task_id in published if task_id not in done]
