"""Queued tasks that are looked at before they are due, as their messages may be lost.

A blocking pop takes a message before it can be filed.  A worker that dies in between, or loses the
connection on which it waits, leaves a record whose message is nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.model import Due, Record, State, SweepReport
from celery_reliable.recovery.message_presence import RAREST_LOOK, Presence
from celery_reliable.settings import ReliableConfig

__all__ = ["MOST_BYTES", "Asked", "LostMessages"]

#: The most bytes of messages that a pass has in memory, unless a single one is longer.
MOST_BYTES = 4 * 1024 * 1024
#: Each time a task is sent again doubles the time until the next look, this often at the most.
_DOUBLINGS = 6
#: The most batches that one pass looks at.
_MOST_BATCHES = 4


@dataclass(frozen=True)
class Asked:
    """What passes are asked to look at before it is due."""

    #: Since when messages may have been lost, in ms of the server's clock.
    since_ms: int
    #: Grows with each request, so that a sweeper can settle only the requests that it knew of.
    count: int

    @classmethod
    def of(cls, begun: answers.Begun) -> Asked | None:
        """Return what the beginning of a pass was asked for; None if nothing."""
        if begun.ahead_ms is None or begun.ahead_count is None:
            return None
        return cls(begun.ahead_ms, begun.ahead_count)


@dataclass
class _Progress:
    """How far this sweeper has come with what it was asked."""

    asked: Asked
    #: The due times that are still to be looked at: the first and the last of each range, in ms.
    spans: list[tuple[int, int]]
    seen: set[str] = field(default_factory=set)


class LostMessages:
    """Looks ahead, a bounded number of records in each pass."""

    def __init__(
        self,
        ledger: Ledger,
        config: ReliableConfig,
        send_if_missing: Callable[[Due, Record, int, Presence, SweepReport], int],
    ) -> None:
        self._ledger = ledger
        self._config = config
        self._send_if_missing = send_if_missing
        self._progress: _Progress | None = None

    def look(self, asked: Asked, presence: Presence, report: SweepReport) -> bool:
        """Send queued tasks again whose message is nowhere; False if the next pass has to go on.

        A task is due a known time after it was sent.  So due times tell which tasks were sent since
        messages may have been lost: they come first, then those that have waited for longer.
        """
        now_ms, n_resent = self._ledger.workers.time_ms(), report.resent
        progress = self._progress
        if progress is None or progress.asked != asked:
            progress = self._progress = _Progress(asked, self._spans(asked.since_ms, now_ms))
        left = _MOST_BATCHES * self._config.sweep_batch
        while progress.spans and left > 0:
            first_ms, last_ms = progress.spans[0]
            batch = min(left, self._config.sweep_batch)
            dues = self._ledger.due_between(first_ms, last_ms, limit=batch)
            left -= len(dues)
            new = [due for due in dues if due.task_id not in progress.seen]
            progress.seen |= {due.task_id for due in new}
            self._look_at([d for d in new if not presence.is_held(d.task_id)], presence, report)
            if len(dues) < batch:
                progress.spans.pop(0)
            else:
                # More than a batch may be due in one ms.  Those few are seen when they are due.
                next_ms = int(dues[-1].due_ms)
                progress.spans[0] = (next_ms if next_ms > first_ms else first_ms + 1, last_ms)
        self._progress = progress if progress.spans else None
        # If none of so many is missing, the rest is a backlog.  What is lost of that is found when
        # it is due.
        if self._progress is None or report.resent == n_resent:
            return True
        report.is_full = True
        return False

    def _spans(self, since_ms: int, now_ms: int) -> list[tuple[int, int]]:
        queued_ms = self._config.queued_ms
        spans = []
        for doubled in range(_DOUBLINGS + 1):
            after_ms = queued_ms * 2**doubled
            # What is due by now is looked at anyway.
            first_ms = max(since_ms + after_ms, now_ms)
            if first_ms <= now_ms + after_ms:
                spans.append((first_ms, now_ms + after_ms))
        longest_ms = max(RAREST_LOOK * queued_ms, queued_ms + self._config.eta_horizon_ms)
        return [*spans, (now_ms, now_ms + longest_ms)]

    def _look_at(self, dues: list[Due], presence: Presence, report: SweepReport) -> None:
        now_ms = self._ledger.workers.time_ms()
        found = self._ledger.find_in_groups([d.task_id for d in dues], most_bytes=MOST_BYTES)
        for due, one in zip(dues, found, strict=True):
            try:
                record = one.record
                if record is not None and _is_sent(record):
                    self._send_if_missing(due, record, now_ms, presence, report)
            except (LedgerUnavailable, LedgerRefused):
                raise
            except Exception as exc:
                # It is looked at again when it is due.
                logger.error("not_looked_at_ahead id=%s error=%s", due.task_id, exc, exc_info=exc)


def _is_sent(record: Record) -> bool:
    """Whether a message of it should exist."""
    is_sent = record.state is State.QUEUED and not record.is_unsent
    return is_sent and not record.is_revoked
