"""Queued tasks that are looked at before they are due, as their messages may be lost.

A blocking pop takes a message before it can be filed.  A worker that dies in between, or loses the
connection on which it waits, leaves a record whose message is nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from celery_reliable import events
from celery_reliable.broker import Entry, Unacked
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger
from celery_reliable.log import logger
from celery_reliable.message import Envelope, Stamp
from celery_reliable.model import Due, Reason, Record, State, SweepReport
from celery_reliable.options import is_reliable
from celery_reliable.recovery.broker_view import RAREST_LOOK, Job, Presence
from celery_reliable.settings import ReliableConfig

__all__ = [
    "MOST_BYTES",
    "Asked",
    "LostMessages",
    "Returns",
    "is_over",
    "stamp_of",
]

#: The most bytes of messages that a pass has in memory, unless a single one is longer.
MOST_BYTES = 4 * 1024 * 1024
#: Each time a task is sent again doubles the time until the next look, this often at the most.
_DOUBLINGS = 6
#: The most batches that one pass looks at.
_MOST_BATCHES = 4


class Asked(NamedTuple):
    """What passes are asked to look at before it is due."""

    #: Since when messages may have been lost, in ms of the ledger's clock.
    since_ms: int
    #: Grows with each request, so that a sweeper can settle only the requests that it knew of.
    number: int


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
        #: What is being looked at; the due times that are still to be looked at (the first and the
        #: last of each range, in ms); and what was seen.
        self._asked: Asked | None = None
        self._ranges: list[tuple[int, int]] = []
        self._seen: set[str] = set()

    def look(self, asked: Asked, presence: Presence, report: SweepReport) -> bool:
        """Send queued tasks again whose message is nowhere; False if the next pass has to go on.

        A task is due a known time after it was sent.  So due times tell which tasks were sent since
        messages may have been lost: they come first, then those that have waited for longer.
        """
        now_ms, n_resent = self._ledger.workers.time_ms(), report.resent
        if self._asked != asked:
            self._asked, self._seen = asked, set()
            self._ranges = self._spans(asked.since_ms, now_ms)
        left = _MOST_BATCHES * self._config.sweep_batch
        while self._ranges and left > 0:
            first_ms, last_ms = self._ranges[0]
            batch = min(left, self._config.sweep_batch)
            dues = self._ledger.due_between(first_ms, last_ms, limit=batch)
            left -= len(dues)
            new = [due for due in dues if due.task_id not in self._seen]
            self._seen |= {due.task_id for due in new}
            self._look_at([d for d in new if not presence.is_held(d.task_id)], presence, report)
            if len(dues) < batch:
                self._ranges.pop(0)
            else:
                # More than a batch may be due in one ms.  Those few are seen when they are due.
                next_ms = int(dues[-1].due_ms)
                self._ranges[0] = (next_ms if next_ms > first_ms else first_ms + 1, last_ms)
        if not self._ranges:
            self._asked = None
            return True
        # If none of so many is missing, the rest is a backlog.  What is lost of that is found when
        # it is due.
        if report.resent == n_resent:
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
        return [*spans, (now_ms, now_ms + RAREST_LOOK * queued_ms)]

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


class Returns(Job):
    """Gives messages of unacked hashes back to their queues, drops those of tasks that are over,
    and buries plain tasks that were lost too often.
    """

    def give_back(
        self,
        unacked: Unacked,
        entries: list[Entry],
        report: SweepReport,
        *,
        lease: WorkerLease | None = None,
        last: Collection[str] = (),
    ) -> int:
        """Put messages in front of what waits in their queues; those of the tasks in *last* go
        behind it.  Returns how many of *entries* are dealt with.

        *lease*: of the dead worker; None when no worker is known.
        """
        done = 0
        # Each goes in front of the queue, so the newest is first and the oldest ends up foremost.
        newest = sorted(entries, key=lambda entry: entry.filed_ms, reverse=True)
        task_ids = [entry.task_id for entry in newest]
        found = self.ledger.find_in_groups(task_ids, most_bytes=MOST_BYTES)
        for entry, one in zip(newest, found, strict=True):
            try:
                done += self._give_back(unacked, lease, entry, one.record, last, report)
            except (LedgerRefused, LedgerUnavailable):
                raise
            except Exception as exc:
                # One message that cannot be moved must not hold up the others.
                logger.error(
                    "not_given_back unacked=%s tag=%s error=%s",
                    unacked.name,
                    entry.tag,
                    exc,
                    exc_info=exc,
                )
                report.failed += 1
        return done

    def _give_back(
        self,
        unacked: Unacked,
        lease: WorkerLease | None,
        entry: Entry,
        record: Record | None,
        last: Collection[str],
        report: SweepReport,
    ) -> bool:
        """Deal with one message; False when it has to stay for now."""
        if is_over(self.ledger, entry, record):
            unacked.discard(entry.tag)
            report.dropped += 1
            return True
        was_opening = (
            lease is not None and lease.verdict.may_be_opening and entry.tag == lease.opening
        )
        # With a count of 1 or more, a worker notes that it opens the message before it does.
        is_last, returns = was_opening or entry.task_id in last, max(entry.returns, 1)
        if record is None and entry.payload is not None:
            is_plain = not (stamp_of(entry).epoch or is_reliable(self._task_of(entry)))
            if is_plain and not self._may_move(lease, entry):
                return False
            # Nobody claims a plain task, so each return may be the loss of an attempt, unless its
            # worker is known to have died of something else.
            may_have_run = is_plain and self._may_have_run(entry)
            is_explained = lease is not None and lease.verdict.is_opening
            if was_opening or (may_have_run and not is_explained):
                # The first return of a message that cannot have run counts for nothing.
                if entry.returns >= self.config.max_losses + (not may_have_run):
                    self._bury(unacked, entry, "opened" if was_opening else "held")
                    report.buried += 1
                    return True
                is_last, returns = is_last or entry.returns > 0, entry.returns + 1
        report.returned += unacked.give_back(
            self.broker.channel, entry.tag, is_last=is_last, returns=returns
        )
        return True

    def _task_of(self, entry: Entry) -> Any:
        return self.app.tasks.get(entry.task_name)

    def _may_move(self, lease: WorkerLease | None, entry: Entry) -> bool:
        """Whether a plain task's message may go back although no claim would refuse a second run:
        nobody can run it now, or Celery itself would redeliver it by now.
        """
        if lease is not None:
            if lease.cause == "connection":
                return True
            if lease.looks_again and not self._may_have_run(entry):
                return True
        options = self.app.conf.broker_transport_options or {}
        # Celery's own default on Redis is an hour.
        timeout_ms = float(options.get("visibility_timeout", 3600)) * 1000
        return time.time() * 1000 - entry.filed_ms > timeout_ms

    def _may_have_run(self, entry: Entry) -> bool:
        """Whether a plain task whose message is unacknowledged may have begun: not one that is
        acknowledged before it begins.
        """
        return bool(getattr(self._task_of(entry), "acks_late", True))

    def _bury(self, unacked: Unacked, entry: Entry, what: str) -> None:
        whole = unacked.entry(entry.tag)
        if whole is None or whole.payload is None:
            # Somebody else has dealt with it.
            return
        task_id, losses = entry.task_id or f"lost-{entry.tag}", entry.returns + 1
        why = f"its worker died {losses} times while it {what} the message"
        self.ledger.bury_message(
            task_id,
            Reason.LOST,
            exception=why,
            traceback="",
            message=Envelope.from_payload(whole.payload, entry.queue).to_text(),
            name=entry.task_name,
            epoch=stamp_of(entry).epoch,
        )
        unacked.discard(entry.tag)
        events.task_buried(
            app=self.app,
            name=entry.task_name,
            task_id=task_id,
            reason=Reason.LOST,
            losses=losses,
            exception=why,
        )


def is_over(ledger: Ledger, entry: Entry, record: Record | None) -> bool:
    """Whether a message is to be dropped, as its task has ended or goes on with another message.
    *record*: what was found of the task.

    It is not left to the claim to refuse it: a worker without the package would run it.
    """
    stamp = stamp_of(entry)
    if record is None:
        return bool(stamp.generation) and ledger.has_ended(
            entry.task_id, stamp.generation, stamp.epoch
        )
    return record.state is State.DEAD or bool(stamp.epoch and stamp.epoch != record.epoch)


def stamp_of(entry: Entry) -> Stamp:
    """Return the stamp of a message; an empty one of a message without it."""
    return Stamp.of((entry.payload or {}).get("headers"))
