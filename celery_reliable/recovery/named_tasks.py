"""Tasks that only some workers may run: sent to one that lives, or waiting for one.

What was sent to a worker that is gone waits in a queue that nobody consumes.  A pass empties that
queue, and has the tasks sent to others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from celery import Celery

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger, LivingWorker, answers
from celery_reliable.message import Envelope, NamedWorkers, is_named
from celery_reliable.model import Due, Record, SweepReport
from celery_reliable.publishing import placed
from celery_reliable.recovery.broker_view import BrokerView
from celery_reliable.recovery.message_presence import RAREST_LOOK

__all__ = ["NamedTasks"]

#: At most so many messages of a queue that nobody consumes are moved by one pass.
_MOVED_AT_ONCE = 500
#: So many of those that wait are looked at by one pass, whether they do.
_LOOKED_AT_ONCE = 100


class NamedTasks:
    """Chooses workers for tasks on behalf of passes; for one sweeper."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView) -> None:
        reliable = reliable_of(app)
        self._app = app
        self._config = reliable.config
        self._ledger = ledger
        self._broker = broker
        self._living = reliable.living_by(ledger)
        #: Read when it is first asked for in a pass.
        self._found: list[LivingWorker] | None = None
        #: The workers for which this sweeper has looked through what waits.
        self._seen: set[str] = set()
        #: Where it is in looking whether they wait yet.
        self._walk: Iterator[list[tuple[str, str]]] = iter(())
        #: Queues that nobody consumes, and since when this sweeper has seen that (monotonic).
        self._orphans: dict[str, float] = {}

    def begin(self, leases: list[WorkerLease], report: SweepReport) -> None:
        """Begin a pass: empty the queues of workers that are gone, and wake what waits for those
        that have come.  An app without such workers asks nothing.
        """
        self._found = None
        if not any(one.direct_queue for one in leases):
            return
        if self._broker.is_redis:
            self._empty_orphans(report)
        new = [one for one in self.living if one.worker not in self._seen]
        if self._ledger.named.waiting():
            if new:
                self._wake(new)
            self._forget_some()
        self._seen = {one.worker for one in self.living}

    @property
    def living(self) -> list[LivingWorker]:
        """The workers that can be sent a task, as they were when this pass first asked."""
        if self._found is None:
            self._found = self._living.read()
        return self._found

    # -- one record

    def is_astray(self, record: Record) -> bool:
        """Whether the message of a queued task is where nobody runs it: the worker that it was sent
        to is gone, or may not run it.
        """
        if not is_named(record.message):
            return False
        envelope = Envelope.from_text(record.message)
        named = NamedWorkers.of(envelope.headers)
        if named is None or named.is_elsewhere:
            return False
        place = (envelope.exchange, envelope.routing_key)
        if not named.only and place == named.home:
            return False
        return not any(
            place == ("", one.queue) and named.means(one.nodename) for one in self.living
        )

    def message_for(self, record: Record) -> str | None:
        """Return the message of a task as it is to be sent now, to a worker that may run it; None
        while it has to wait for one.
        """
        envelope = Envelope.from_text(record.message)
        named = NamedWorkers.of(envelope.headers)
        if named is None:
            return record.message
        place = placed(named, self.living)
        return None if place is None else place.readdressed(envelope).to_text()

    def park(self, due: Due, record: Record) -> None:
        """Let a task wait for a worker that may run it."""
        named = NamedWorkers.of(Envelope.from_text(record.message).headers)
        assert named is not None
        answer = self._ledger.named.park(
            due, named.at_home().to_text(), due_in_ms=RAREST_LOOK * self._config.queued_ms
        )
        if isinstance(answer, answers.Unplaced) and answer.is_new:
            events.task_waits_for_worker(
                app=self._app,
                name=record.name,
                task_id=record.task_id,
                workers=", ".join(named.only),
            )

    # -- all of them

    def _wake(self, new: list[LivingWorker]) -> None:
        """Let tasks be due that wait for one of the *new* workers."""
        means: dict[str, bool] = {}
        for some in self._ledger.named.each_waiting():
            for _, text in some:
                if text not in means:
                    named = NamedWorkers.from_text(text)
                    means[text] = any(named.means(one.nodename) for one in new)
            self._ledger.named.wake_all([task_id for task_id, text in some if means[text]])

    def _forget_some(self) -> None:
        """Take some off the index of what waits that do not wait any more: they were revoked."""
        some = next(self._walk, None)
        if some is None:
            self._walk = self._ledger.named.each_waiting(_LOOKED_AT_ONCE)
            return
        self._ledger.named.wake_all([task_id for task_id, _ in some], is_there=False)

    def _empty_orphans(self, report: SweepReport) -> None:
        """Have all sent to others that waits in the queues of workers that are gone."""
        consumed = {one.queue for one in self.living}
        listed = dict(self._ledger.named.queues())
        now, orphans = time.monotonic(), self._orphans
        self._orphans = {one: orphans.get(one, now) for one in listed if one not in consumed}
        for queue, since in self._orphans.items():
            ours = [one for one in self._broker.messages_in(queue, _MOVED_AT_ONCE) if one.is_named]
            # First it is certain that each task is sent again.  Its message is a copy from then on.
            self._ledger.named.divert_all([(one.task_id, one.epoch) for one in ours])
            self._broker.remove(ours)
            report.is_full = report.is_full or len(ours) >= _MOVED_AT_ONCE
            # Who chose this worker just before it went may send there yet.
            if not ours and now - since > self._config.lease_seconds:
                self._ledger.named.unlist(queue, listed[queue])
