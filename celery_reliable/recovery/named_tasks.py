"""Tasks that only some workers may run: sent to one that lives, or waiting for one.

What was sent to a worker that is gone waits in a queue that nobody consumes.  A pass empties that
queue, and has the tasks sent to others.

What waits is looked through for workers that the pass before has not seen, whoever ran that: each
pass leaves in the ledger whom it has seen.  A worker that was away while a pass let something wait
is not among them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from celery import Celery
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import AS_IT_IS, Ledger, LivingWorker, Resent, answers
from celery_reliable.message import Envelope, NamedWorkers, Stamp, is_named, seconds_until
from celery_reliable.model import Due, Record, State, SweepReport
from celery_reliable.options import room_of
from celery_reliable.publishing import (
    at_home,
    placed,
    resend,
    send_stored,
)
from celery_reliable.recovery.broker_view import (
    RAREST_LOOK,
    BrokerView,
    Job,
    Waiting,
    logged_failures,
)
from celery_reliable.recovery.returns import MOST_BYTES

__all__ = [
    "Emptied",
    "Sending",
    "empty_own_queue",
]


class Emptied(NamedTuple):
    """What became of the messages of a queue.  Counts."""

    looked_at: int
    taken: int


def empty_own_queue(
    app: Celery, ledger: Ledger, broker: BrokerView, queue: str, at_once: int
) -> Emptied:
    """Take out what names workers, of about *at_once* messages of a queue on a Redis.

    Each task is due then, to be sent again from its record.  One whose record the ledger has lost
    goes to the queue that it would have if it named nobody: whoever claims it records it anew.
    Raises what the ledger and the broker raise.
    """
    found = broker.messages_in(queue, at_once)
    named = [one for one in found if one.is_named]
    # First it is certain that each task is sent again.  Its message is a copy from then on.
    told = ledger.named.divert_all([(one.task_id, one.epoch) for one in named])
    taken: list[Waiting] = []
    lost: list[Waiting] = []
    for one, answer in zip(named, told, strict=True):
        (lost if isinstance(answer, answers.Absent) else taken).append(one)
    broker.remove(taken)
    n_sent = sum(_is_sent_home(app, ledger, broker, one) for one in lost)
    return Emptied(len(found), len(taken) + n_sent)


def _is_sent_home(app: Celery, ledger: Ledger, broker: BrokerView, message: Waiting) -> bool:
    """Take out a message that has no record, and send it unless its task has ended; False where it
    has to stay.

    It is not left to the claim to refuse it: a worker without the package would run it.  And each
    is taken out when it is sent: what fails for another does not send it once more.
    """
    try:
        envelope = Envelope.from_payload(loads(bytes_to_str(message.raw)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    stamp = Stamp.of(envelope.headers)
    if not (stamp.generation and ledger.has_ended(message.task_id, stamp.generation, stamp.epoch)):
        home = at_home(envelope)
        if home is None:
            return False
        resend(app, home)
    broker.remove([message])
    return True


#: At most so many messages of a queue that nobody consumes are moved by one pass.
_MOVED_AT_ONCE = 500
_RUNS_AT_ONCE = 20
_DAY_SECONDS = 86_400


class Sending(Job):
    """Sends what a pass, or the waker, has found to be due, and chooses workers for what only some
    may run; for one sweeper.
    """

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView) -> None:
        super().__init__(app, ledger, broker)
        self._living = reliable_of(app).living_by(ledger)
        #: The workers that the pass before has seen, of every app; and those that this one has
        #: seen whenever it looked.
        self._before: set[str] = set()
        self._seen: set[str] = set()
        self._last_look: list[LivingWorker] = []
        #: Queues that nobody consumes, and since when this sweeper has seen that (monotonic).
        self._orphans: dict[str, float] = {}

    def hear(self, seen: str) -> None:
        """Take what the pass before has `seen`, before a pass; empty: it is not known."""
        self._before, self._seen = set(json.loads(seen or "[]")), set()

    @property
    def seen(self) -> str:
        """Which workers the pass that ends has seen, for the next one."""
        return json.dumps(sorted(self._seen)) if self._seen else ""

    def begin(self, leases: list[WorkerLease], report: SweepReport) -> None:
        """Begin a pass: empty the queues of workers that are gone, and wake what waits for those
        that have come.  An app without such workers asks nothing.
        """
        if not any(one.direct_queue for one in leases):
            return
        self._living.close()
        if self.broker.is_redis:
            self._empty_orphans(leases, report)
        living = self._last_look = self._living.now(within=1.0)
        # Those of another app that shares the ledger; its passes look for them.
        own = ("", str(self.app.main or ""))
        others = {one.worker for one in leases if one.project[0] not in own}
        self._seen = {one.worker for one in living} | (self._before & others)
        new = [one for one in living if one.worker not in self._before]
        if new and self.ledger.named.waiting():
            self._wake(new)
        self._look_at_runs()

    @property
    def living(self) -> list[LivingWorker]:
        """The workers that can be sent a task, as they were a second ago."""
        return self._living_within(1.0)

    def _living_within(self, seconds: float) -> list[LivingWorker]:
        found = self._living.now(within=seconds)
        if found is not self._last_look:
            # For who went meanwhile something may be let wait.
            gone = {one.worker for one in self._last_look} - {one.worker for one in found}
            self._seen -= gone
            self._last_look = found
        return found

    # -- one record

    def is_astray(self, record: Record) -> bool:
        """Whether the message of a queued task is where nobody runs it: the worker that it was sent
        to is gone, or may not run it.
        """
        if not is_named(record.message):
            return False
        envelope = Envelope.from_text(record.message)
        named = NamedWorkers.of(envelope.headers)
        if named is None:
            return False
        place = (envelope.exchange, envelope.routing_key)
        if not named.only and place == named.home:
            return False
        return not any(
            place == ("", one.queue) and named.means(one.nodename) for one in self.living
        )

    def _message_for(self, record: Record) -> Resent | None:
        """Return the message of a task as it is to be sent now, to a worker that may run it; None
        while it has to wait for one.
        """
        envelope = Envelope.from_text(record.message)
        named = NamedWorkers.of(envelope.headers)
        if named is None:
            return AS_IT_IS
        place = placed(self.ledger.runs, record.task_id, named, self._living_within)
        if place is None:
            return None
        sent, epoch = place.readdressed(envelope), record.epoch
        if named.pin and place.named.pin != named.pin:
            # What was sent to the other worker must not begin there, should one of its name start.
            sent, epoch = sent.published_anew(record.epoch, self.ledger.generation)
        return Resent(sent.to_text(), record.epoch, epoch)

    def _sent(self, record: Record, message: str) -> None:
        """Note that a task was sent by this message, and by none before it."""
        named = NamedWorkers.of(Envelope.from_text(message).headers)
        if named is not None and named.run:
            self.ledger.runs.confirm(named.run, record.task_id, named.pin)

    def _park(self, due: Due, record: Record) -> None:
        """Let a task wait for a worker that may run it."""
        named = NamedWorkers.of(Envelope.from_text(record.message).headers)
        assert named is not None
        answer = self.ledger.named.wait(
            due, named.to_text(), due_in_ms=RAREST_LOOK * self.config.queued_ms
        )
        if isinstance(answer, answers.Changed):
            return
        if named.run:
            # Nothing of it begins before it is sent again.
            self.ledger.runs.confirm(named.run, record.task_id, "")
        if record.waiting_for != "workers":
            events.task_waits_for_worker(
                app=self.app,
                name=record.name,
                task_id=record.task_id,
                workers=", ".join(named.only),
            )

    # -- all of them

    def _wake(self, new: list[LivingWorker]) -> None:
        """Let tasks be due that wait for one of the *new* workers."""
        means: dict[str, bool] = {}
        for some in self.ledger.named.each_waiting():
            for _, text in some:
                if text not in means:
                    named = NamedWorkers.from_text(text)
                    means[text] = any(named.means(one.nodename) for one in new)
            meant = [(task_id, "") for task_id, text in some if means[text]]
            self.ledger.named.divert_all(meant, is_waiting=True)

    def _look_at_runs(self) -> None:
        """Forget runs that are over, some time after that."""
        # They are kept as long as results.
        expires = self.app.conf.result_expires
        seconds = expires.total_seconds() if isinstance(expires, timedelta) else expires
        keep_ms = int(1000 * (seconds or _DAY_SECONDS))
        runs = self.ledger.runs
        for name, due_ms in runs.due(_RUNS_AT_ONCE):
            run = runs.find(name)
            members = {} if run is None else run.members
            looks = self.ledger.look_all(list(members))
            living = [one.record for one in looks if one and one.record.state is not State.DEAD]
            if not living:
                runs.end(name, due_ms, keep_ms=keep_ms)
                continue
            for record in living:
                if len(members[record.task_id]) > 1:
                    self._confirm(record.task_id)
            runs.end(name, due_ms, due_in_ms=self.config.queued_ms)

    def _confirm(self, task_id: str) -> None:
        """Let a member have no other worker than the one that it was sent to."""
        record = self.ledger.find(task_id)
        if record is not None and record.state is not State.WAITING:
            self._sent(record, record.message)

    def _empty_orphans(self, leases: list[WorkerLease], report: SweepReport) -> None:
        """Have all sent to others that waits in the queues of workers that are gone or drained."""
        # Who was drained, or silent for a while, registers no more when it comes back.
        registered = {one.direct_queue for one in leases if not one.is_dead}
        consumed = {one.queue for one in self.living}
        listed = dict(self.ledger.named.queues())
        now, orphans = time.monotonic(), self._orphans
        self._orphans = {one: orphans.get(one, now) for one in listed if one not in consumed}
        for queue, since in self._orphans.items():
            done = empty_own_queue(self.app, self.ledger, self.broker, queue, _MOVED_AT_ONCE)
            report.is_full = report.is_full or done.taken >= _MOVED_AT_ONCE
            # Who chose this worker just before it went may send there yet.
            is_gone = now - since > self.config.lease_seconds and queue not in registered
            if is_gone and not done.taken:
                self.ledger.named.unlist(queue, listed[queue])

    # -- sending

    def send(self, due: Due, record: Record, report: SweepReport, stored: str = "") -> None:
        """Send a task that is due, unless somebody else has, or it has to wait yet."""
        message, places, is_expired = AS_IT_IS, None, False
        if record.in_line_of:
            places, is_expired = self._in_line(record)
        elif is_named(record.message):
            sent = self._message_for(record)
            if sent is None:
                self._park(due, record)
                return
            message = sent
        answer = self.ledger.resend(
            due,
            due_in_ms=self.config.queued_ms,
            stored=stored,
            message=message,
            places=places,
            is_expired=is_expired,
        )
        if isinstance(answer, answers.Held):
            # The worker makes it due once it has stopped the attempt, or is dead within a lease.
            self.ledger.postpone(due, due_in_ms=self.config.lease_ms)
        if not isinstance(answer, answers.Send):
            if message.text:
                # Somebody else has sent it.  The worker that was chosen here is free for another
                # member of its run.
                self._confirm(due.task_id)
            return
        if message.text:
            self._sent(record, message.text)
        report.resent += send_stored(
            self.app,
            self.ledger,
            due.task_id,
            answer,
            # What was lost goes first once; a task that is lost again waits behind the others.
            is_first=record.goes_first or (record.is_unsent and record.losses == 1),
        )

    def _in_line(self, record: Record) -> tuple[int | None, bool]:
        """Return how many places there are by now of the object in whose line a task stands, None
        without its code, and whether it has expired there: a worker says so.
        """
        headers = Envelope.from_text(record.message).headers
        task = self.app.tasks.get(record.name)
        room = room_of(task, record.in_line_of, headers) if task is not None else None
        expires = headers.get("expires")
        places = room.places if room and not room.is_own else None
        return places, bool(expires and not seconds_until(expires))

    def send_woken(self, dues: Sequence[Due]) -> None:
        """Send tasks whose moment has come, as `send` does.

        Limited ones go in front of their queues: they have waited there once, and behind what has
        come since they would be late, and then too many at once.  What only another app knows is
        left to that one's passes.
        """
        looks = self.ledger.find_in_groups([due.task_id for due in dues], most_bytes=MOST_BYTES)
        found = [
            (due, look.record)
            for due, look in zip(dues, looks, strict=True)
            if look.record is not None and look.record.name in self.app.tasks
        ]
        # Each of these goes in front of the one before.
        foremost = [one for one in reversed(found) if one[1].goes_first]
        for due, record in (*(one for one in found if not one[1].goes_first), *foremost):
            report = SweepReport()
            with logged_failures(report, "not_handled id=%s error=%s", due.task_id):
                self.send(due, record, report)
