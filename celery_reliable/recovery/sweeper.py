"""One bounded pass over what is overdue: dead workers, what they held, and records that are due for
a look.

Every step is atomic and may be repeated: two passes at once, or one killed half way, do no harm.
A pass costs as much as is overdue.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile

from celery import Celery

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.model import GroupOfLetters, SweepReport
from celery_reliable.recovery.broker_view import BrokerView, Job, logged_failures
from celery_reliable.recovery.losses import DeadWorkers, Losses
from celery_reliable.recovery.named_tasks import Sending
from celery_reliable.recovery.overdue import Overdue

__all__ = [
    "MOST_PASSES_IN_A_ROW",
    "Retention",
    "Sweeper",
    "end_orders",
]

#: How often a pass lets go some of what waits for an order.
_MOST_LET_GO = 50


def end_orders(app: Celery, ledger: Ledger, report: SweepReport) -> None:
    """Let go what waits for orders that are over, or that somebody has ended."""
    orders = ledger.orders.read()
    for order in orders.all:
        if order.is_in_force(orders.now_ms):
            continue
        for _ in range(_MOST_LET_GO):
            answer = ledger.orders.resume(order.id)
            if isinstance(answer, answers.Resumed) and answer.is_more:
                continue
            if isinstance(answer, answers.Resumed) and not order.ended_ms:
                events.order_ended(
                    app=app,
                    kind=order.kind.value,
                    target=order.target,
                    by="",
                    order=order.id,
                )
            break
        else:
            report.is_full = True


#: A letter: its id, and when it was buried in ms.
_Entry = tuple[str, int]


class Retention(Job):
    """Discards dead letters, a batch in each pass.

    What a pass reads of letters is a batch, however many there are.
    """

    def trim(self, report: SweepReport) -> None:
        """Discard at most a batch of those that are too old, then of those that are too many: the
        largest group loses its oldest letters first, so a flood pushes out its own letters and no
        others.
        """
        batch = self.config.sweep_batch
        trimmed = 0
        oldest, old = self.ledger.letters_after(None, batch), []
        if oldest:
            before_ms = self.ledger.workers.time_ms() - self.config.dead_letter_ms
            old = list(takewhile(lambda entry: entry[1] <= before_ms, oldest))
            trimmed += self._discard(old, "older than DEAD_LETTER_SECONDS")
            report.is_full = report.is_full or len(old) == batch
            over = self.ledger.count_dead() - self.config.dead_letter_max
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


#: How many passes may follow one another without a pause.
MOST_PASSES_IN_A_ROW = 20


class Sweeper(Job):
    """Runs passes for one app; for one thread, with connections of its own."""

    def __init__(self, app: Celery) -> None:
        reliable = reliable_of(app)
        ledger = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=1.0)
        super().__init__(app, ledger, BrokerView(app))
        self.project = reliable.project
        # On one server, queues lose messages only when the records are lost too.
        self._has_queues_elsewhere = (
            reliable.is_redis_broker and not reliable.is_delivered_from_ledger
        )
        self.losses = Losses(app, ledger)
        self.recovery = DeadWorkers(app, ledger, self.broker, self.losses)
        self.sending = Sending(app, ledger, self.broker)
        self.overdue = Overdue(app, ledger, self.broker, self.losses, self.sending)
        #: What the ledger's clock said last, in ms, and when that was by this process's clock.
        self._said: tuple[int, float] | None = None
        self.retention = Retention(app, ledger, self.broker)

    def close(self) -> None:
        """Close the connections."""
        self.broker.close()
        self.ledger.close()

    def run_if_due(
        self, most_passes: int = MOST_PASSES_IN_A_ROW
    ) -> tuple[SweepReport | None, float]:
        """Run a pass unless one runs or finished within SWEEP_SECONDS; and others, *most_passes* in
        all, while there is more to do than one does.

        Returns its report, or None, and the seconds after which to ask again.  Raises
        LedgerUnavailable and LedgerRefused.
        """
        config = self.config
        nonce, report = secrets.token_hex(8), None
        for turn in range(most_passes):
            answer = self.ledger.passes.begin(
                nonce,
                interval_ms=config.sweep_ms if turn == 0 else 0,
                # Short, as for so long a sweeper that was killed keeps the others from sweeping.
                ttl_ms=config.sweep_ms,
                interruption_ms=int(max(0.6 * config.lease_ms, 2.5 * config.sweep_ms)),
                lease_ms=config.lease_ms,
                expected_ms=self._expected_ms,
            )
            if isinstance(answer, answers.NotDue):
                self._said = answer.now_ms, clock.now()
                return report, max(0.05, min(answer.wait_ms / 1000, config.sweep_seconds))
            if not isinstance(answer, answers.Begun):
                return report, config.sweep_seconds / 2
            self._said = answer.now_ms, clock.now()
            self.sending.hear(answer.seen)
            report, has_looked = self._run(answer)
            self.ledger.passes.end(
                nonce,
                asdict(report),
                str(answer.ahead_count or "") if has_looked else "",
                ended_ms=self._expected_ms,
                seen=self.sending.seen,
            )
            events.pass_finished(app=self.app, report=report)
            if not report.is_full:
                break
        return report, config.sweep_seconds

    @property
    def _expected_ms(self) -> int | None:
        """The ledger's time as it has to be by now, in ms; None while nothing is known."""
        if self._said is None:
            return None
        said_ms, at = self._said
        return said_ms + int(1000 * (clock.now() - at))

    def _run(self, begun: answers.Begun) -> tuple[SweepReport, bool]:
        report = SweepReport()
        started = time.monotonic()
        leases = self.ledger.workers.leases()
        dead = self._declare(leases, report)
        living = {lease.project for lease in leases if not lease.is_dead}
        for lease in dead:
            if lease.project in living and lease.project not in (self.project, ("", "")):
                # Living workers of its own app know its tasks and its broker.
                continue
            with logged_failures(report, "not_recovered worker=%s error=%s", lease.worker):
                self.recovery.recover(lease, report)
        self.recovery.recover_ownerless(leases, report)
        if self._has_queues_elsewhere:
            self._recognize_broker(report)
        self.sending.begin(leases, report)
        gone = {lease.worker for lease in dead}
        alive = [lease for lease in leases if lease.worker not in gone]
        end_orders(self.app, self.ledger, report)
        has_looked = self.overdue.look(begun, alive, dead, report)
        self.retention.trim(report)
        report.duration_seconds = round(time.monotonic() - started, 3)
        return report, has_looked

    def _recognize_broker(self, report: SweepReport) -> None:
        """If the queues may have been lost, have all that is queued looked at by a pass at once."""
        seen = self.broker.seen()
        if seen and isinstance(self.ledger.passes.look_ahead(broker=seen), answers.Asked):
            logger.warning("broker_is_another_or_was_emptied")
            report.is_full = True

    def _declare(self, leases: list[WorkerLease], report: SweepReport) -> list[WorkerLease]:
        """Declare dead whose lease lapsed or whose connection is gone; return all dead workers."""
        config, workers = self.config, self.ledger.workers
        alive = [lease for lease in leases if not lease.is_dead]
        now_ms = workers.time_ms()
        connected = (
            workers.connected(lease.client_id for lease in alive) if config.witness_ms else None
        )
        for lease in alive:
            causes = []
            # A lost connection needs no grace after an outage, so it is tried before the lease.
            if connected is not None and lease.has_witness and lease.client_id not in connected:
                causes.append("connection")
            if lease.until_ms <= now_ms:
                causes.append("lapsed")
            for cause in causes:
                answer = workers.declare(
                    lease,
                    cause,
                    witness_ms=config.witness_ms,
                    expected_ms=self._expected_ms,
                )
                if isinstance(answer, answers.Declared):
                    report.declared += 1
                    events.worker_declared_dead(app=self.app, worker=lease.worker, cause=cause)
                    break
        return [
            lease for lease in (workers.leases() if report.declared else leases) if lease.is_dead
        ]
