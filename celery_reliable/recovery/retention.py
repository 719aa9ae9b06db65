"""Which dead letters go when there are too many of them, or when they are too old; and the groups
of those that stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.model import GroupOfLetters, SweepReport
from celery_reliable.settings import ReliableConfig

__all__ = ["Retention"]

#: New letters whose group is noted by one pass.
_GROUPED_AT_ONCE = 1_000

#: A letter: its id, when it was buried in ms, and its reason.
_Entry = tuple[str, int, str]


class Retention:
    """Discards dead letters, a batch in each pass, and keeps the index of their groups up to date.

    For one thread.  What a pass reads of letters is a batch, however many there are.
    """

    def __init__(self, config: ReliableConfig, ledger: Ledger) -> None:
        self._config = config
        self._ledger = ledger
        #: Whether the index of groups may have entries.
        self._may_be_grouped = True

    def trim(self, report: SweepReport) -> None:
        """Discard at most a batch of those that are too old, then of those that are too many: the
        largest group loses its oldest letters first, so a flood pushes out its own letters and no
        others.
        """
        batch = self._config.sweep_batch
        trimmed: Counter[str] = Counter()
        oldest, old = self._ledger.oldest_dead(batch), []
        if oldest:
            before_ms = self._ledger.workers.time_ms() - self._config.dead_letter_ms
            old = list(takewhile(lambda entry: entry[1] <= before_ms, oldest))
            self._discard(self._with_reasons(old), trimmed, "older than DEAD_LETTER_SECONDS")
            report.is_full = report.is_full or len(old) == batch
        if oldest or self._may_be_grouped:
            known = self._ledger.groups.catch_up(_GROUPED_AT_ONCE)
            self._may_be_grouped = known.letters > 0
            over = known.letters - self._config.dead_letter_max
            # Sizes of groups count only where nearly all letters are in one.  An index that lags
            # behind is waited for, until there are twice as many letters as there may be.
            is_known = known.letters - known.grouped <= _GROUPED_AT_ONCE
            if over > 0 and (is_known or over > self._config.dead_letter_max):
                over -= self._trim_surplus(min(over, batch - len(old)), trimmed, is_known)
            report.is_full = report.is_full or over > 0
        report.trimmed += sum(trimmed.values())
        if trimmed:
            reasons = " ".join(f"{reason}={count}" for reason, count in sorted(trimmed.items()))
            logger.warning("dead_letters_trimmed count=%s %s", report.trimmed, reasons)

    def _trim_surplus(self, count: int, trimmed: Counter[str], is_known: bool) -> int:
        """Discard up to *count* letters of the largest groups; return how many."""
        entries: list[_Entry] = []
        groups = self._ledger.groups.counts() if is_known else []
        level = _level(groups, count)
        for one in groups:
            # The largest group comes first.  The last one may reach below the level.
            surplus = min(one.count - level, count - len(entries))
            if surplus <= 0:
                break
            found = self._ledger.groups.letters_of(one.group.id, None, surplus)
            entries += [(task_id, ms, one.group.reason) for task_id, ms in found]
        if not is_known and count > 0:
            entries = self._with_reasons(self._ledger.oldest_dead(count))
        return self._discard(entries, trimmed, "more than DEAD_LETTER_MAX", is_surplus=True)

    def _with_reasons(self, entries: list[tuple[str, int]]) -> list[_Entry]:
        reasons = self._ledger.reasons_of([task_id for task_id, _ in entries])
        return [(*entry, reason) for entry, reason in zip(entries, reasons, strict=True)]

    def _discard(
        self,
        entries: Iterable[_Entry],
        trimmed: Counter[str],
        why: str,
        *,
        is_surplus: bool = False,
    ) -> int:
        entries, before = list(entries), trimmed.total()
        members = self._ledger.groups.members_of([(task_id, ms) for task_id, ms, _ in entries])
        for task_id, buried_ms, reason in entries:
            answer = self._ledger.discard(
                task_id, buried_ms=buried_ms, by=why, outcome="TRIMMED", is_surplus=is_surplus
            )
            trimmed[reason] += isinstance(answer, answers.Discarded)
        self._ledger.groups.look_at(members)
        return trimmed.total() - before


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
