"""One bounded pass over what is overdue: dead workers, what they held, and records that are due for
a look.

Every step is atomic and may be repeated: two passes at once, or one killed half way, do no harm.
A pass costs as much as is overdue.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import takewhile

from celery import Celery

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.model import GroupOfLetters, SweepReport
from celery_reliable.recovery.broker_view import BrokerView
from celery_reliable.recovery.losses import DeadWorkers, Losses
from celery_reliable.recovery.lost_messages import Asked
from celery_reliable.recovery.named_tasks import NamedTasks, Sending
from celery_reliable.recovery.overdue import ClockStep, Overdue
from celery_reliable.settings import ReliableConfig

__all__ = [
    "MOST_PASSES_IN_A_ROW",
    "Retention",
    "Sweeper",
    "end_orders",
]

#: How often a pass lets go some of what an order has parked.
_MOST_LET_GO = 50


def end_orders(app: Celery, ledger: Ledger, report: SweepReport) -> None:
    """Let go what was parked by orders that are over, or that somebody has ended."""
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


#: How many passes may follow one another without a pause.
MOST_PASSES_IN_A_ROW = 20
#: After a step of the clock: how many records a script sets back, and how often a pass calls it.
_SET_BACK_AT_ONCE = 500
_MOST_SET_BACK = 200
#: After so long another pass that is wanted, while one runs, is tried again.
_SOON_SECONDS = 0.2


class _ServerClock:
    """Predicts the server's clock: what it said last, and the time that has passed since."""

    def __init__(self) -> None:
        self._said_ms: int | None = None
        self._at = 0.0

    def told(self, now_ms: int) -> None:
        """Take the server's time from an answer that has just come."""
        self._said_ms, self._at = now_ms, clock.now()

    @property
    def expected_ms(self) -> int | str:
        """The time in ms; empty while nothing is known."""
        if self._said_ms is None:
            return ""
        return self._said_ms + int(1000 * (clock.now() - self._at))


class Sweeper:
    """Runs passes for one app; for one thread, with connections of its own."""

    def __init__(self, app: Celery) -> None:
        reliable = reliable_of(app)
        self.app = app
        self.config = reliable.config
        self.project = reliable.project
        self.ledger: Ledger = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=1.0)
        self.broker = BrokerView(app)
        # On one server, queues lose messages only when the records are lost too.
        self._has_queues_elsewhere = (
            reliable.is_redis_broker and not reliable.is_delivered_from_ledger
        )
        self.losses = Losses(app, self.ledger)
        self.recovery = DeadWorkers(app, self.ledger, self.broker, self.losses)
        self.named = NamedTasks(app, self.ledger, self.broker)
        self.sending = Sending(app, self.ledger, self.named)
        self.overdue = Overdue(app, self.ledger, self.broker, self.losses, self.named, self.sending)
        self._clock = _ServerClock()
        #: When something happened after which a pass is to begin at once, by the server's clock.
        self.wanted_ms = 0
        self.retention = Retention(self.config, self.ledger)

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
        nonce, server_clock = secrets.token_hex(8), self._clock
        report = None
        for turn in range(most_passes):
            answer = self.ledger.passes.begin(
                nonce,
                interval_ms=self._interval_ms() if turn == 0 else 0,
                # Short, as for so long a sweeper that was killed keeps the others from sweeping.
                ttl_ms=config.sweep_ms,
                interruption_ms=int(max(0.6 * config.lease_ms, 2.5 * config.sweep_ms)),
                lease_ms=config.lease_ms,
                expected_ms=server_clock.expected_ms,
            )
            if isinstance(answer, answers.NotDue):
                self.wanted_ms = 0
                server_clock.told(answer.now_ms)
                # After a step of its clock the server's answer may be far too long.
                wait_seconds = min(answer.wait_ms / 1000, config.sweep_seconds)
                return report, max(0.05, wait_seconds)
            if isinstance(answer, answers.Busy):
                # It may have looked before that happened.
                soon = _SOON_SECONDS if self.wanted_ms else config.sweep_seconds
                return report, min(soon, config.sweep_seconds / 2)
            self.wanted_ms = 0
            server_clock.told(answer.now_ms)
            asked = Asked.of(answer)
            self.overdue.step = ClockStep.of(answer)
            self.named.hear(answer.seen)
            report, has_looked = self._run(asked, is_behind=answer.behind_ms is not None)
            self.ledger.passes.end(
                nonce,
                asdict(report),
                str(asked.count) if asked and has_looked else "",
                ended_ms=server_clock.expected_ms,
                seen=self.named.seen,
            )
            events.pass_finished(app=self.app, report=report)
            if not report.is_full:
                break
        return report, config.sweep_seconds

    def _interval_ms(self) -> int:
        """How long ago a pass may have begun that is enough."""
        now_ms = self._clock.expected_ms
        if not self.wanted_ms or not isinstance(now_ms, int):
            return self.config.sweep_ms
        return min(self.config.sweep_ms, max(0, now_ms - self.wanted_ms))

    def _run(self, asked: Asked | None, *, is_behind: bool) -> tuple[SweepReport, bool]:
        report = SweepReport()
        started = time.monotonic()
        try:
            if is_behind:
                self._set_back(report)
            leases = self.ledger.workers.leases()
            dead = self._declare(leases, report)
            living = {lease.project for lease in leases if not lease.is_dead}
            for lease in dead:
                if lease.project in living and lease.project not in (self.project, ("", "")):
                    # Living workers of its own app know its tasks and its broker.
                    continue
                try:
                    self.recovery.recover(lease, report)
                except (LedgerUnavailable, LedgerRefused):
                    raise
                except Exception as exc:
                    # A worker that cannot be recovered must not hold up the others.
                    logger.error(
                        "not_recovered worker=%s error=%s", lease.worker, exc, exc_info=exc
                    )
                    report.failed += 1
            self.recovery.recover_ownerless(leases, report)
            if self._has_queues_elsewhere:
                self._recognize_broker(report)
            self.named.begin(leases, report)
            gone = {lease.worker for lease in dead}
            alive = [lease for lease in leases if lease.worker not in gone]
            end_orders(self.app, self.ledger, report)
            has_looked = self.overdue.look(alive, dead, report, asked)
            self.retention.trim(report)
        finally:
            # After a failover the next pass has to connect anew.
            if self.broker.is_redis:
                self.broker.keep_fresh()
        report.duration_seconds = round(time.monotonic() - started, 3)
        return report, has_looked

    def _set_back(self, report: SweepReport) -> None:
        """Set back what is due, after a step of the server's clock."""
        for _ in range(_MOST_SET_BACK):
            if isinstance(self.ledger.passes.set_back(_SET_BACK_AT_ONCE), answers.Ended):
                logger.warning("clock_stepped_back")
                return
        report.is_full = True

    def _recognize_broker(self, report: SweepReport) -> None:
        """If the queues may have been lost, have all that is queued looked at by a pass at once."""
        seen = self.broker.seen()
        if seen and isinstance(self.ledger.passes.recognize(seen), answers.Asked):
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
            if not now_ms < lease.until_ms <= now_ms + 2 * config.lease_ms:
                causes.append("lapsed")
            for cause in causes:
                answer = workers.declare(
                    lease,
                    cause,
                    witness_ms=config.witness_ms,
                    expected_ms=self._clock.expected_ms,
                )
                if isinstance(answer, answers.Declared):
                    report.declared += 1
                    events.worker_declared_dead(app=self.app, worker=lease.worker, cause=cause)
                    break
        return [
            lease for lease in (workers.leases() if report.declared else leases) if lease.is_dead
        ]
