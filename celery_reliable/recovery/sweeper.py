"""One bounded pass over what is overdue: dead workers, what they held, and records that are due for
a look.

Every step is atomic and may be repeated: two passes at once, or one killed half way, do no harm.
A pass costs as much as is overdue.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict

from celery import Celery

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.model import SweepReport
from celery_reliable.recovery.broker_view import BrokerView, Job, logged_failures
from celery_reliable.recovery.dead_workers import DeadWorkers
from celery_reliable.recovery.losses import Losses
from celery_reliable.recovery.named_tasks import Sending
from celery_reliable.recovery.overdue import Overdue
from celery_reliable.recovery.retention import Retention

__all__ = [
    "MOST_PASSES_IN_A_ROW",
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


#: How many passes may follow one another without a pause.
MOST_PASSES_IN_A_ROW = 20
#: Who asks so much later is not told that it is a moment too early.
_EARLY_SECONDS = 0.05


class Sweeper(Job):
    """Runs passes for one app; for one thread."""

    def __init__(self, app: Celery) -> None:
        reliable = reliable_of(app)
        ledger = reliable.ledger.with_patience(1.0)
        super().__init__(app, ledger, BrokerView(app))
        self.project = reliable.project
        # On one server, queues lose messages only when the records are lost too.
        self._has_queues_elsewhere = (
            reliable.is_redis_broker and not reliable.is_delivered_from_ledger
        )
        self.losses = Losses(app, ledger)
        self.dead_workers = DeadWorkers(app, ledger, self.broker, self.losses)
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
                return report, _EARLY_SECONDS + min(answer.wait_ms / 1000, config.sweep_seconds)
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
        return report, config.sweep_seconds + _EARLY_SECONDS

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
        leases = self.ledger.workers.leases(begun)
        dead = self.dead_workers.declare(
            begun, leases, report, expected_ms=lambda: self._expected_ms
        )
        living = {lease.project for lease in leases if not lease.is_dead}
        for lease in dead:
            if lease.project in living and lease.project not in (self.project, ("", "")):
                # Living workers of its own app know its tasks and its broker.
                continue
            with logged_failures(report, "not_recovered worker=%s error=%s", lease.worker):
                self.dead_workers.recover(lease, report)
        self.dead_workers.recover_ownerless(leases, report)
        if self._has_queues_elsewhere:
            self._recognize_broker(report)
        self.sending.begin(leases, report)
        gone = {lease.worker for lease in dead}
        alive = [lease for lease in leases if lease.worker not in gone]
        if begun.n_orders:
            end_orders(self.app, self.ledger, report)
        has_looked = self.overdue.look(begun, alive, dead, report)
        self.retention.trim(begun, report)
        report.duration_seconds = round(time.monotonic() - started, 3)
        return report, has_looked

    def _recognize_broker(self, report: SweepReport) -> None:
        """If the queues may have been lost, have all that is queued looked at by a pass at once."""
        seen = self.broker.seen()
        if seen and isinstance(self.ledger.passes.look_ahead(broker=seen), answers.Asked):
            logger.warning("broker_is_another_or_was_emptied")
            report.is_full = True
