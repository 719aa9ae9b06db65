"""Which dead letters go when there are too many of them, or when they are too old; and the groups
of those that stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

from celery_reliable import events
from celery_reliable.ledger import Ledger, answers
from celery_reliable.model import Reason, SweepReport
from celery_reliable.settings import ReliableConfig

__all__ = ["Retention"]

#: Reasons that every application has plenty of, and that leave traces elsewhere too.  The others
#: are rare, and dead letters are kept for their sake, so they go last.
_ORDINARY = frozenset({Reason.FAILED.value, Reason.REJECTED.value, ""})

#: New letters whose group is noted by one pass.
_GROUPED_AT_ONCE = 1_000


class Retention:
    """Discards dead letters, a batch in each pass, and keeps the index of their groups up to date.

    For one thread.  A pass costs a batch, however many dead letters there are: it passes over rare
    ones, and the next pass begins where they end.
    """

    def __init__(self, config: ReliableConfig, ledger: Ledger) -> None:
        self._config = config
        self._ledger = ledger
        #: The last of the oldest letters of which all are known to be rare.
        self._passed_over = ""
        #: Whether the index of groups may have entries.
        self._may_be_grouped = True

    def trim(self, report: SweepReport) -> None:
        """Discard at most a batch of those that are too old, then of those that are too many: the
        oldest ordinary ones first, the rare ones when there are no others.
        """
        batch = self._config.sweep_batch
        trimmed: Counter[str] = Counter()
        oldest = self._ledger.oldest_dead(batch)
        if oldest:
            before_ms = self._ledger.workers.time_ms() - self._config.dead_letter_ms
            old = list(takewhile(lambda entry: entry[1] <= before_ms, oldest))
            self._discard(self._with_reasons(old), trimmed)
            over = self._ledger.count_dead() - self._config.dead_letter_max
            left = batch - len(old)
            if over > 0 and left > 0:
                over -= self._trim_surplus(min(over, left), left, trimmed)
            report.is_full = report.is_full or over > 0 or len(old) == batch
        if oldest or self._may_be_grouped:
            self._may_be_grouped = self._ledger.groups.catch_up(_GROUPED_AT_ONCE).letters > 0
        report.trimmed += sum(trimmed.values())
        if trimmed:
            events.dead_letters_trimmed(count=report.trimmed, reasons=dict(sorted(trimmed.items())))

    def _trim_surplus(self, over: int, limit: int, trimmed: Counter[str]) -> int:
        """Discard up to *over* of *limit* letters; return how many."""
        # 0 if somebody has replayed or discarded that letter.
        start = self._ledger.count_dead_until(self._passed_over)
        entries = self._with_reasons(self._ledger.oldest_dead(limit, start=start))
        if not entries:
            self._passed_over = ""
            return self._discard(self._with_reasons(self._ledger.oldest_dead(over)), trimmed)
        ordinary = [entry for entry in entries if entry[2] in _ORDINARY][:over]
        gone = {task_id for task_id, _, _ in ordinary}
        kept = (entry for entry in entries if entry[0] not in gone)
        for task_id, _, _ in takewhile(lambda entry: entry[2] not in _ORDINARY, kept):
            self._passed_over = task_id
        return self._discard(ordinary, trimmed)

    def _with_reasons(self, entries: list[tuple[str, int]]) -> list[tuple[str, int, str]]:
        reasons = self._ledger.reasons_of([task_id for task_id, _ in entries])
        return [(*entry, reason) for entry, reason in zip(entries, reasons, strict=True)]

    def _discard(self, entries: Iterable[tuple[str, int, str]], trimmed: Counter[str]) -> int:
        entries, before = list(entries), trimmed.total()
        members = self._ledger.groups.members_of([(task_id, ms) for task_id, ms, _ in entries])
        for task_id, buried_ms, reason in entries:
            answer = self._ledger.discard(task_id, buried_ms=buried_ms)
            trimmed[reason] += isinstance(answer, answers.Discarded)
        self._ledger.groups.look_at(members)
        return trimmed.total() - before
