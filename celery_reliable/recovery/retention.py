"""How long dead letters are kept, and how many."""

from __future__ import annotations

from collections.abc import Sequence

from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.model import GroupOfLetters, SweepReport
from celery_reliable.recovery.broker_view import Job

__all__ = ["Retention"]

#: A letter: its id, and when it was buried in ms.
_Entry = tuple[str, int]


class Retention(Job):
    """Discards dead letters, a batch in each pass.

    What a pass reads of letters is a batch, however many there are.
    """

    def trim(self, begun: answers.Begun, report: SweepReport) -> None:
        """Discard at most a batch of those that are too old, then of those that are too many: the
        largest group loses its oldest letters first, so a flood pushes out its own letters and no
        others.
        """
        batch, before_ms = self.config.sweep_batch, begun.now_ms - self.config.dead_letter_ms
        old: list[_Entry] = []
        if begun.n_dead and begun.oldest_ms <= before_ms:
            old = self.ledger.letters_after(None, batch, until_ms=before_ms)
        trimmed = self._discard(old, "older than DEAD_LETTER_SECONDS")
        report.is_full = report.is_full or len(old) == batch
        over = begun.n_dead - trimmed - self.config.dead_letter_max
        if over > 0:
            surplus = self._trim_surplus(min(over, batch - len(old)))
            over, trimmed = over - surplus, trimmed + surplus
        report.is_full = report.is_full or over > 0
        report.trimmed += trimmed
        if trimmed:
            logger.warning("dead_letters_trimmed count=%s", trimmed)

    def _trim_surplus(self, count: int) -> int:
        """Discard up to *count* letters of the largest groups; return how many."""
        entries: list[_Entry] = []
        groups = self.ledger.groups.counts()
        level = _level(groups, count)
        for one in groups:
            # The largest group comes first.  The last one may reach below the level.
            surplus = min(one.count - level, count - len(entries))
            if surplus <= 0:
                break
            entries += self.ledger.groups.letters_of(one.group.id, None, surplus)
        return self._discard(entries, "more than DEAD_LETTER_MAX", is_surplus=True)

    def _discard(self, entries: Sequence[_Entry], why: str, *, is_surplus: bool = False) -> int:
        found = [
            self.ledger.discard(
                task_id, buried_ms=buried_ms, by=why, outcome="TRIMMED", is_surplus=is_surplus
            )
            for task_id, buried_ms in entries
        ]
        return sum(isinstance(answer, answers.Cancelled) for answer in found)


def _level(groups: Sequence[GroupOfLetters], count: int) -> int:
    """Return how many letters the largest groups keep each, so that *count* go in all; at least 0.

    *groups*: the largest first.
    """
    total = 0
    for at, one in enumerate(groups, 1):
        total += one.count
        following = groups[at].count if at < len(groups) else 0
        if total - at * following >= count:
            return (total - count) // at
    return 0
