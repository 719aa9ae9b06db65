"""One bounded pass over what is overdue: dead workers, what they held, records that somebody must look at.

Every step is atomic and may be repeated: two passes at once, or one killed half way, do no harm.  The cost is that of what
is overdue.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from typing import Any

from celery import Celery, shared_task
from celery import states as celery_states
from celery.app.task import Context
from celery.exceptions import BackendError
from kombu.serialization import loads as deserialize
from kombu.serialization import prepare_accept_content

from celery_reliable import signals
from celery_reliable.application import reliable_of
from celery_reliable.broker import BrokerView
from celery_reliable.envelope import Envelope, Stamp
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger import Ledger
from celery_reliable.model import (
    Cause,
    Claim,
    Due,
    Reason,
    Record,
    Reply,
    State,
    SweepReport,
    WorkerLease,
)
from celery_reliable.publisher import is_reliable, resend

__all__ = ["Sweeper", "sweep"]

logger = logging.getLogger(__name__)

#: A pass that is followed at once by the next is followed at most so often.
_MOST_PASSES_IN_A_ROW = 20


class Sweeper:
    """Runs passes for one app; for one thread, with connections of its own."""

    def __init__(self, app: Celery) -> None:
        reliable = reliable_of(app)
        self.app = app
        self.config = reliable.config
        self.ledger: Ledger = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=1.0)
        self.broker = BrokerView(app)

    def close(self) -> None:
        """Close the connections."""
        self.broker.close()
        self.ledger.close()

    def run_if_due(self) -> tuple[SweepReport | None, float]:
        """Run a pass unless one runs or finished within SWEEP_SECONDS.

        Returns its report, or None, and the seconds after which to ask again.
        """
        config = self.config
        nonce = secrets.token_hex(8)
        report = None
        for turn in range(_MOST_PASSES_IN_A_ROW):
            answer = self.ledger.workers.begin_pass(
                nonce,
                interval_ms=config.sweep_ms if turn == 0 else 0,
                # Short: a pass whose process was frozen or killed holds the others up only so long.
                ttl_ms=config.sweep_ms,
                interruption_ms=int(max(0.6 * config.lease_ms, 2.5 * config.sweep_ms)),
                lease_ms=config.lease_ms,
            )
            if answer.reply is not Reply.BEGUN:
                wait_ms = answer.values[0] if answer.reply is Reply.NOT_DUE else config.sweep_ms / 2
                return report, max(0.05, float(wait_ms) / 1000)
            report = self._run()
            self.ledger.workers.end_pass(nonce, report.as_dict())
            signals.pass_finished.send(sender=self.app, report=report)
            if not report.is_full:
                break
        return report, config.sweep_seconds

    def _run(self) -> SweepReport:
        report = SweepReport()
        started = time.monotonic()
        try:
            leases = self.ledger.workers.leases()
            dead = self._declare(leases, report)
            for lease in dead:
                self._recover(lease, report)
            gone = {lease.worker for lease in dead}
            self._look_at_due([lease for lease in leases if lease.worker not in gone], report)
            self._trim(report)
        finally:
            # The next pass finds another server, or the same one, by itself.
            if self.broker.is_redis:
                self._keep_broker_fresh()
        report.duration_seconds = round(time.monotonic() - started, 3)
        if report.declared or report.lost or report.resent or report.buried or report.returned:
            logger.warning(
                "sweep %s", " ".join(f"{k}={v}" for k, v in report.as_dict().items() if v)
            )
        return report

    def _keep_broker_fresh(self) -> None:
        channel = self.broker._channel
        if channel is None:
            return
        try:
            with channel.conn_or_acquire() as client:
                client.ping()
        except Exception:
            self.broker.close()

    # -- (a) deaths

    def _declare(self, leases: list[WorkerLease], report: SweepReport) -> list[WorkerLease]:
        """Declare dead who lapsed or whose connection is gone; return all that are dead."""
        config, workers = self.config, self.ledger.workers
        alive = [lease for lease in leases if not lease.is_dead]
        now_ms = workers.time_ms()
        connected = (
            workers.connected(lease.client_id for lease in alive) if config.witness_ms else None
        )
        for lease in alive:
            if lease.until_ms <= now_ms:
                cause = "lapsed"
            elif connected is not None and lease.client_id not in ("", "0", *connected):
                cause = "connection"
            else:
                continue
            if workers.declare(lease, cause, witness_ms=config.witness_ms).reply is Reply.DECLARED:
                report.declared += 1
                logger.warning("worker_declared_dead worker=%s cause=%s", lease.worker, cause)
                signals.worker_declared.send(sender=lease.worker, cause=cause)
        return [
            lease for lease in (workers.leases() if report.declared else leases) if lease.is_dead
        ]

    # -- (b) what they held

    def _recover(self, lease: WorkerLease, report: SweepReport) -> None:
        batch = self.config.sweep_batch
        claims = list(self.ledger.workers.claims(lease.worker).values())
        has_room = bool(lease.room) and self.broker.is_redis
        entries = self.broker.room(lease.room).entries(batch * 4) if has_room else []
        in_room = {_id_of(payload) for _, payload, _ in entries}
        lost: set[str] = set()
        for claim, _ in claims[:batch]:
            if self._lose(claim, Cause.WORKER_LOST, report, has_message=claim.task_id in in_room):
                lost.add(claim.task_id)
        report.is_full = report.is_full or len(claims) > batch or len(entries) > batch
        left = len(entries)
        if entries:
            left -= self._give_back(lease, entries[:batch], lost, report)
        if left == 0 and len(claims) <= batch:
            in_room_now = len(self.broker.room(lease.room)) if has_room else 0
            if self.ledger.workers.deregister(lease.worker, in_room=in_room_now) and has_room:
                self.broker.forget(lease.room)

    def _give_back(
        self,
        lease: WorkerLease,
        entries: list[tuple[str, dict[str, Any], int]],
        lost: set[str],
        report: SweepReport,
    ) -> int:
        """Return the original messages to their queues; those that were only waiting go in front again."""
        room, channel = self.broker.room(lease.room), self.broker.channel
        known = self.ledger.find_all([_id_of(payload) for _, payload, _ in entries])
        done = 0
        # The newest first, as each that was waiting goes in front of the others.
        for (tag, payload, filed_ms), record in sorted(
            zip(entries, known, strict=True), key=lambda item: item[0][2], reverse=True
        ):
            task_id = _id_of(payload)
            if record is not None and record.state is State.DEAD:
                room.discard(tag)
                report.dropped += 1
                done += 1
                continue
            if not self._is_ours(payload, record) and not self._may_move_plain(lease, filed_ms):
                continue
            if room.give_back(channel, tag, is_last=task_id in lost):
                report.returned += 1
                done += 1
        return done

    def _is_ours(self, payload: dict[str, Any], record: Record | None) -> bool:
        headers = payload.get("headers") or {}
        return (
            record is not None
            or bool(Stamp.of(headers).epoch)
            or is_reliable(self.app.tasks.get(str(headers.get("task"))))
        )

    def _may_move_plain(self, lease: WorkerLease, filed_ms: int) -> bool:
        """Whether a plain task's message may go back: it has no claim that would refuse a second run."""
        if lease.cause == "connection":
            return True
        options = self.app.conf.broker_transport_options or {}
        return time.time() * 1000 - filed_ms > float(options.get("visibility_timeout", 3600)) * 1000

    def _lose(self, claim: Claim, cause: Cause, report: SweepReport, *, has_message: bool) -> bool:
        """Count a loss; True when the task is queued again."""
        record = self.ledger.find(claim.task_id)
        if record is None or record.attempt != claim.attempt:
            return False
        if self._has_succeeded(record):
            self.ledger.settle(claim)
            return False
        answer = self.ledger.lose(
            claim,
            cause,
            max_losses=self.config.max_losses,
            # Without a message it is due at once: this very pass sends it from the record.
            due_in_ms=self.config.queued_ms if has_message else 0,
            is_taken=True,
        )
        if answer.reply not in (Reply.QUEUED, Reply.BURIED):
            return False
        report.lost += 1
        logger.warning(
            "task_lost name=%s id=%s attempt=%d losses=%d cause=%s worker=%s",
            record.name,
            claim.task_id,
            claim.attempt,
            answer.values[0],
            cause.value,
            claim.worker,
        )
        signals.task_lost.send(
            sender=record.name,
            task_id=claim.task_id,
            attempt=claim.attempt,
            losses=int(answer.values[0]),
            cause=cause.value,
        )
        if answer.reply is Reply.BURIED:
            report.buried += 1
            self._announce(claim.task_id)
            return False
        return True

    def lose_orphan(self, claim: Claim) -> None:
        """Lose a claim whose process is gone while its worker lives; the next look sends it from the record."""
        self._lose(claim, Cause.CHILD_LOST, SweepReport(), has_message=False)

    def _has_succeeded(self, record: Record) -> bool:
        """Whether Celery stored SUCCESS before the process died."""
        task = self.app.tasks.get(record.name)
        if task is None or task.ignore_result:
            return False
        return self._stored_state(record.task_id) == celery_states.SUCCESS

    def _stored_state(self, task_id: str) -> str | None:
        try:
            return str(self.app.backend.get_task_meta(task_id, cache=False)["status"])
        except (BackendError, NotImplementedError, AttributeError, OSError, KeyError):
            return None

    # -- (c) records that somebody must look at

    def _look_at_due(self, alive: list[WorkerLease], report: SweepReport) -> None:
        now_ms, dues = self.ledger.due(self.config.sweep_batch)
        if not dues:
            return
        report.looked_at = len(dues)
        report.oldest_overdue_seconds = round((now_ms - float(dues[0].due_ms)) / 1000, 3)
        report.is_full = report.is_full or len(dues) >= self.config.sweep_batch
        held: set[str] | None = None
        for due, record in zip(
            dues, self.ledger.find_all([due.task_id for due in dues]), strict=True
        ):
            if record is None:
                self.ledger.postpone(due, due_in_ms=0)
            elif record.state is State.PARKED:
                self._send(due, report)
            elif record.state is State.RUNNING:
                claim = Claim(
                    due.task_id, record.attempt, record.owner, record.token, record.losses
                )
                self._lose(claim, Cause.STUCK, report, has_message=False)
            elif record.state is State.WAITING:
                if self._stored_state(due.task_id) in celery_states.READY_STATES:
                    self.ledger.cancel(due.task_id)
                else:
                    self.ledger.postpone(due, due_in_ms=self.config.queued_ms)
            elif record.state is State.DEAD:
                self._announce(due.task_id)
            else:
                if held is None and self.broker.is_redis:
                    held = self.broker.task_ids_in(lease.room for lease in alive if lease.room)
                if due.task_id in (held or ()) or self._is_in_queue(record):
                    self.ledger.postpone(due, due_in_ms=self.config.queued_ms)
                else:
                    self._send(due, report)

    def _is_in_queue(self, record: Record) -> bool:
        """Whether the message can still be in its queue: then what is popped next was sent before it.

        In doubt True, where the broker keeps messages itself.  A wrong False costs a second message, which the claim refuses.
        """
        if not self.broker.is_redis:
            return False
        sent_ms = max(record.sent_ms, record.published_ms)
        for head in self.broker.heads(_envelope_of(record)):
            if record.task_id in head:
                return True
            ours = [
                found for found in self.ledger.find_all([i for i in head if i]) if found is not None
            ]
            if ours:
                if min(max(found.sent_ms, found.published_ms) for found in ours) <= sent_ms:
                    return True
            elif head:
                return True
        return False

    def _send(self, due: Due, report: SweepReport) -> None:
        answer = self.ledger.resend(due, due_in_ms=self.config.queued_ms)
        if answer.reply is not Reply.SEND:
            return
        resend(self.app, Envelope.from_text(answer.text(0)))
        report.resent += 1

    def _announce(self, task_id: str) -> None:
        """Pay what a burial owes Celery: FAILURE stored, errbacks called, chord told."""
        letter = self.ledger.dead_letter(task_id)
        if letter is None or not letter.is_owed:
            return
        task = self.app.tasks.get(letter.name)
        error = RuntimeError(
            f"lost {letter.losses} times ({letter.exception}): every attempt ended without an outcome; dead-lettered"
        )
        backend = task.backend if task is not None else self.app.backend
        backend.mark_as_failure(
            task_id,
            error,
            request=_context_of(self.app, letter.message),
            store_result=task is None
            or not task.ignore_result
            or task.store_errors_even_if_ignored,
        )
        self.ledger.announced(task_id, letter.buried_ms)
        logger.error(
            "task_buried name=%s id=%s losses=%d reason=lost", letter.name, task_id, letter.losses
        )
        signals.task_buried.send(sender=letter.name, task_id=task_id, reason=Reason.LOST.value)

    # -- (d) retention

    def _trim(self, report: SweepReport) -> None:
        config, ledger = self.config, self.ledger
        batch = config.sweep_batch
        oldest = ledger.oldest_dead_ids(min(batch, 100))
        if not oldest:
            return
        before_ms = ledger.workers.time_ms() - config.dead_letter_ms
        over = ledger.count_dead() - config.dead_letter_max
        for index, letter in enumerate(ledger.dead_letters(oldest)):
            if letter is None:
                ledger.discard(oldest[index])
            elif letter.buried_ms <= before_ms or index < over:
                if (
                    ledger.discard(letter.task_id, buried_ms=letter.buried_ms).reply
                    is Reply.DISCARDED
                ):
                    report.trimmed += 1
        if report.trimmed:
            logger.warning("dead_letters_trimmed count=%d", report.trimmed)


def _id_of(payload: dict[str, Any]) -> str:
    return str((payload.get("headers") or {}).get("id") or "")


def _envelope_of(record: Record) -> Envelope:
    return Envelope.from_text(record.message)


def _context_of(app: Celery, message: str) -> Context:
    """Return the request that a stored message would have had, as far as it can be read."""
    envelope = Envelope.from_text(message)
    fields: dict[str, Any] = dict(envelope.headers)
    fields.update(
        reply_to=envelope.properties.get("reply_to"),
        correlation_id=envelope.properties.get("correlation_id"),
        delivery_info={"exchange": envelope.exchange, "routing_key": envelope.routing_key},
    )
    try:
        args, kwargs, embed = deserialize(
            envelope.body,
            envelope.content_type,
            envelope.content_encoding,
            accept=prepare_accept_content(app.conf.accept_content),
        )
        fields.update(embed or {}, args=args, kwargs=kwargs)
    except Exception as exc:
        logger.warning("message_not_readable id=%s error=%r", envelope.task_id, exc)
    return Context(fields, called_directly=False)


_kept = threading.local()


@shared_task(name="celery_reliable.sweep", bind=True, ignore_result=True, acks_late=False)
def sweep(self: Any) -> dict[str, Any] | None:
    """Run a pass of the sweeper, unless one has just finished.  For the beat schedule.

    Workers run passes by themselves when none finished within SWEEP_SECONDS, so this task may be late or missing.
    """
    sweeper: Sweeper | None = getattr(_kept, "sweeper", None)
    if sweeper is None or sweeper.app is not self.app:
        sweeper = _kept.sweeper = Sweeper(self.app)
    try:
        report, _ = sweeper.run_if_due()
    except LedgerUnavailable as exc:
        logger.warning("sweep_postponed error=%s", exc)
        return None
    return report.as_dict() if report is not None else None
