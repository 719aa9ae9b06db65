"""Which format of a namespace this release reads and writes, and what it says of a newer one.

All of a namespace has one format: its records, indexes and locks, and the stamps of its messages.
More fields, more keys and more answers are no other format: older releases ignore them.  A format
is another one when an older release would misread what stands there.  The number is the field
``format`` of ``meta``; none is format 1.  Each worker's facts say which format it knows.  Who
raises the number waits until every worker knows the new one, and begins a new generation in the
same step, as publishers learn of a format with the generation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.transitions import A, Step

__all__ = ["FORMAT", "CheckingCaller", "newer", "refuse_newer"]

T = TypeVar("T")

#: What this release reads and writes.
FORMAT = 1


def newer(found: str, shown: str, meta: str, operation: str) -> LedgerRefused:
    """Return what is raised where the namespace of the key *meta* has the newer format *found*."""
    return LedgerRefused(
        f"The ledger's Redis at {shown} has the namespace {meta.partition(':')[0].strip('{}')!r} "
        f"in format {found}, and this release of celery_reliable knows format {FORMAT}: a newer "
        f"one writes there. Nothing was done ({operation}). Upgrade celery_reliable here, or give "
        "this app a NAMESPACE of its own.",
        operation=operation,
    )


def refuse_newer(found: str, shown: str, meta: str, operation: str) -> None:
    """Raise `newer` if *found* is a newer format.  No release writes what is no number."""
    if found.isdecimal() and int(found) > FORMAT:
        raise newer(found, shown, meta, operation)


class CheckingCaller(Caller):
    """Looks at the format of its namespace before it asks anything else, once.

    For operators, who come and go: workers and publishers hear it with what they do anyway.
    """

    def __init__(self, caller: Caller, meta: str) -> None:
        super().__init__(caller.client, caller.shown, caller.patience_seconds)
        self._meta = meta
        self._is_checked = False

    def run(
        self,
        step: Step[A],
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> A:
        """As `Caller.run`.  Raises LedgerRefused in a newer format."""
        self._check(step.code.name, patience_seconds)
        return super().run(step, patience_seconds, undone_patience_seconds)

    def run_all(self, steps: Sequence[Step[A]]) -> list[A]:
        """As `Caller.run_all`.  Raises LedgerRefused in a newer format."""
        if steps:
            self._check(steps[0].code.name, None)
        return super().run_all(steps)

    def read(self, what: str, run: Callable[[Any], T], patience_seconds: float | None = None) -> T:
        """As `Caller.read`.  Raises LedgerRefused in a newer format."""
        self._check(what, patience_seconds)
        return super().read(what, run, patience_seconds)

    def _check(self, operation: str, patience_seconds: float | None) -> None:
        if not self._is_checked:
            found = super().read(
                operation, lambda client: client.hget(self._meta, "format"), patience_seconds
            )
            refuse_newer((found or b"").decode(), self.shown, self._meta, operation)
            self._is_checked = True
