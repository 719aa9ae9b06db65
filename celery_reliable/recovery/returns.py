"""Messages of unacked hashes that no living worker has: given back to their queues, or dropped."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from celery_reliable import events
from celery_reliable.broker import Entry, Unacked
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger
from celery_reliable.message import Envelope, Stamp
from celery_reliable.model import Reason, Record, State, SweepReport
from celery_reliable.options import is_reliable
from celery_reliable.recovery.broker_view import Job, logged_failures

__all__ = [
    "MOST_BYTES",
    "Returns",
    "is_over",
    "stamp_of",
]

#: The most bytes of messages that a pass has in memory, unless a single one is longer.
MOST_BYTES = 4 * 1024 * 1024


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
            with logged_failures(
                report, "not_given_back unacked=%s tag=%s error=%s", unacked.name, entry.tag
            ):
                done += self._give_back(unacked, lease, entry, one.record, last, report)
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
        is_last, returns = entry.task_id in last, entry.returns
        if record is None and entry.payload is not None:
            is_plain = not (stamp_of(entry).epoch or is_reliable(self._task_of(entry)))
            if is_plain and not self._may_move(lease, entry):
                return False
            # Nobody has claimed it, so each return may be the loss of an attempt, or the death of
            # whoever opened it.  A plain task that is acknowledged as it begins has not begun.
            if not is_plain or self._may_have_run(entry):
                if returns >= self.config.max_losses:
                    self._bury(unacked, entry)
                    report.buried += 1
                    return True
                is_last, returns = is_last or returns > 0, returns + 1
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

    def _bury(self, unacked: Unacked, entry: Entry) -> None:
        whole = unacked.entry(entry.tag)
        if whole is None or whole.payload is None:
            # Somebody else has dealt with it.
            return
        task_id, losses = entry.task_id or f"lost-{entry.tag}", entry.returns + 1
        why = f"its worker died {losses} times while it held the message"
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
