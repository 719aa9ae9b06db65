"""What the worker's main process does when a child does not come back: `ReliableRequest`.

Celery calls `on_failure` of a custom request for everything but success, and `on_timeout`,
`acknowledge` and `reject`; it never calls its `on_success` or
`execute_using_pool`.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.exceptions import InvalidTaskError
from celery.signals import task_revoked
from celery.worker import state

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.attempt import DELIVERY, EARLY, MESSAGE
from celery_reliable.compat.notes import noted
from celery_reliable.compat.request import OpenRequest
from celery_reliable.context import current_worker
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable, one_line
from celery_reliable.ledger import answers
from celery_reliable.message import HEADER, Stamp, text_as_sent
from celery_reliable.model import Cause, Claim, ClaimRequest, Reason, State
from celery_reliable.options import is_reliable, is_unique, keep_ms, task_ref
from celery_reliable.recovery import Losses
from celery_reliable.worker.child_deaths import how_it_ended
from celery_reliable.worker.children import end_child, is_running_child
from celery_reliable.worker.early_claims import EarlyClaim

__all__ = ["ReliableRequest", "is_ending"]

#: The main process serves all children; it asks the ledger briefly and leaves the rest to the
#: heartbeat's look at claims.
_PATIENCE_SECONDS = 1.0

#: How a child's end looks that was stopped on purpose.
_STOPPED = (Terminated, WorkerLostError, SystemExit, KeyboardInterrupt)

#: The tokens of attempts that are over and whose end is being told.
_ending: set[str] = set()


def is_ending(token: str) -> bool:
    """Whether the main process is about to end an attempt; Celery has forgotten its request."""
    return token in _ending


class ReliableRequest(OpenRequest):
    """One delivery of a reliable task's message, in the main process."""

    #: The claim was taken from this worker and its process is being stopped.
    reliable_is_taken = False
    #: The attempt is being stopped to run again; its claim will be released.
    reliable_is_cancelled = False
    #: Its message was acknowledged, or given back, though the attempt had not ended.
    reliable_is_let_go = False

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(message, *args, **kwargs)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            # Anything else that is raised here ends the worker, and then the next one.
            raise InvalidTaskError(f"no message of a task: {exc!r}") from exc
        #: By the clock of `clock`.
        self.reliable_received_at = clock.now()
        early: EarlyClaim | None = noted(message, "early")
        self.reliable_token = early.request.token if early is not None else secrets.token_hex(8)
        if not self._is_ours:
            return
        properties = {**(self.request_dict.get("properties") or {}), DELIVERY: self.reliable_token}
        # Whatever a sender has put there.
        properties[EARLY] = early.told if early is not None else None
        if HEADER not in (message.headers or {}):
            text = text_as_sent(message)
            if text:
                properties[MESSAGE] = text
        self.request_dict["properties"] = properties

    # -- letting go of a message before the end

    def let_go(self, requeue: bool = False) -> None:
        """Acknowledge the message now, or give it back, and go on as if it were still held: a cold
        shutdown stops only what is not acknowledged.
        """
        if requeue:
            super().reject(requeue=True)
        else:
            super().acknowledge()
        self.reliable_is_let_go, self.acknowledged = True, False

    def acknowledge(self) -> None:
        """Acknowledge the message, unless it was let go."""
        if not self.reliable_is_let_go:
            super().acknowledge()
        self.acknowledged = True

    def reject(self, requeue: bool = False) -> None:
        """Reject the message, unless it was let go."""
        if not self.reliable_is_let_go:
            super().reject(requeue)
        self.acknowledged = True

    # -- outcomes that only the main process sees

    def on_failure(
        self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Count the loss of a killed child; everything else is as in Celery."""
        exc = exc_info.exception
        if isinstance(exc, ExceptionWithTraceback):
            exc = exc.exc
        if self.reliable_is_taken:
            # Its successor owns the task: nothing of this attempt may be stored or given back.
            state.task_ready(self)
            self.acknowledge()
            return
        if not self._is_ours:
            super().on_failure(exc_info, send_failed_event, return_ok)
            return
        if (self.is_cancelled or self.is_revoked) and isinstance(exc, _STOPPED):
            state.task_ready(self)
            self._end_stopped()
            return
        if isinstance(exc, (SystemExit, KeyboardInterrupt)) and not state.should_terminate:
            exc = WorkerLostError(f"Worker exited prematurely: {exc!r}.")
        if isinstance(exc, WorkerLostError) and not state.should_terminate:
            self._lost(exc)
        elif isinstance(exc, TimeLimitExceeded) and not state.should_terminate:
            self._over_limit(exc_info, exc, send_failed_event, return_ok)
        elif not self._try_to_fail(exc_info, send_failed_event, return_ok):
            # The attempt has told the ledger; nothing else would ever let go of the message.
            self.acknowledge()

    def _try_to_fail(self, exc_info: Any, send_failed_event: bool, return_ok: bool) -> bool:
        """Let Celery store a failure; False when it could not."""
        try:
            super().on_failure(exc_info, send_failed_event, return_ok)
        except MemoryError:
            # How Celery ends a worker; one of threads lives on.
            self.acknowledge()
            raise
        except Exception as error:
            events.failure_not_stored(name=self.name, task_id=self.id, error=error)
            return False
        return True

    def _lost(self, exc: WorkerLostError) -> None:
        if self.id in state.revoked and self.revoked():
            # It would run again when nobody remembers the revocation any more.
            return
        try:
            with events.through(self._send):
                self._child_lost(exc)
        except (LedgerUnavailable, LedgerRefused) as error:
            # The claim stays in the ledger, and is found later: it has no process.  The message
            # must not stay with us, or it would look as if this worker still held the task; if
            # it comes back too early it is refused, and the record is sent again.
            state.task_ready(self)
            self.reject(requeue=True)
            events.loss_not_counted(name=self.name, task_id=self.id, error=error)

    def on_retry(self, exc_info: Any) -> None:
        """Call off what was revoked while it ran: nobody may remember that when its ETA comes."""
        super().on_retry(exc_info)
        if self._is_ours and self.id in state.revoked:
            self.revoked()

    def _over_limit(
        self, exc_info: Any, exc: Exception, send_failed_event: bool, return_ok: bool
    ) -> None:
        """Store the failure of an attempt whose process is stopped, and then bury it."""
        # billiard stops it only when hooks and receivers have returned, and Celery forgets the
        # request before it calls them.
        end_child(self.worker_pid)
        _ending.add(self.reliable_token)
        try:
            self._conclude()
            is_owed = not self._try_to_fail(exc_info, send_failed_event, return_ok)
            if self.is_revoked:
                self._end_stopped()
            else:
                with events.through(self._send):
                    self._end(Reason.TIME_LIMIT, exc, is_owed=is_owed)
        finally:
            _ending.discard(self.reliable_token)

    def _conclude(self) -> None:
        """Let no call be answered with a failure that is about to be seen."""
        if not is_unique(self.task):
            return
        with suppress(LedgerUnavailable, LedgerRefused):
            claim = self._claim()
            if claim is not None:
                ledger = reliable_of(self.app).ledger
                ledger.conclude(claim, patience_seconds=_PATIENCE_SECONDS)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Stop the attempt at a cold shutdown, or as its connection was lost."""
        self.reliable_is_cancelled = True
        super().cancel(pool, signal, emit_retry)

    def announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Let Celery store REVOKED, then end the record too."""
        if not self._is_ours:
            super().announce_revoked(reason, terminated, signum, expired)
            return
        try:
            super().announce_revoked(reason, terminated, signum, expired)
        except Exception as error:
            # Into the main loop it would be raised as a lost connection to the broker, or end the
            # worker: again and again, with the message that nobody has acknowledged.
            events.revocation_not_stored(name=self.name, task_id=self.id, error=error)
            self.acknowledge()
            self.is_revoked = True
            if expired:
                # Its record is sent again when it is overdue, and expires again.
                return
            fields = {"terminated": terminated, "signum": signum, "expired": expired}
            task_revoked.send(sender=self.task, request=self.context, **fields)
        try:
            ledger = reliable_of(self.app).ledger
            answer = ledger.cancel(
                self.id,
                # A revocation means the id, whichever publication of it; an expiry this one.
                epoch=Stamp.of(self.request_dict).epoch if expired else "",
                patience_seconds=_PATIENCE_SECONDS,
            )
            # A signal is no end: the task may still run, and take its time or not mind at all.
            # Until its process is gone, or it has ended by itself, the claim and the lock are its.
            if isinstance(answer, answers.Running) and not is_running_child(self.worker_pid):
                self._settle_claim()
        except (LedgerUnavailable, LedgerRefused) as error:
            events.revocation_not_recorded(name=self.name, task_id=self.id, error=error)

    # -- helpers

    @property
    def _is_ours(self) -> bool:
        """Whether the ledger knows, or is to know, of the task."""
        return is_reliable(self.task) and not reliable_of(self.app).is_unprotected

    def _end_stopped(self) -> None:
        """End what was revoked, or release what is to run again, now that its process is gone."""
        if state.should_terminate and not self.is_revoked:
            # Released with all others.
            return
        try:
            if self.is_revoked:
                self._settle_claim()
                return
            claim = self._claim()
            if claim is not None:
                reliable = reliable_of(self.app)
                reliable.ledger.release(
                    claim,
                    due_in_ms=reliable.config.sweep_ms,
                    is_unsent=self.reliable_is_let_go,
                    patience_seconds=_PATIENCE_SECONDS,
                )
        except (LedgerUnavailable, LedgerRefused) as error:
            events.end_not_recorded(name=self.name, task_id=self.id, error=error)

    def _settle_claim(self) -> None:
        """Settle the claim of this delivery, if it is still running."""
        claim = self._claim()
        if claim is not None:
            reliable_of(self.app).ledger.settle(claim, patience_seconds=_PATIENCE_SECONDS)

    def _claim(self) -> Claim | None:
        """Return the claim that this very delivery made, if it is still running."""
        worker = current_worker()
        record = reliable_of(self.app).ledger.find(self.id, patience_seconds=_PATIENCE_SECONDS)
        if worker is None or record is None or record.state is not State.RUNNING:
            return None
        if record.token != self.reliable_token or record.owner.rpartition(".")[0] != worker.base:
            return None
        return Claim(self.id, record.attempt, record.owner, record.token, record.losses)

    def _child_lost(self, exc: WorkerLostError) -> None:
        reliable = reliable_of(self.app)
        ledger, config = reliable.ledger, reliable.config
        losses = Losses(self.app, ledger)
        claim = self._claim()
        if claim is None:
            claim = self._claim_for_lost_child()
        if claim is None:
            # It had settled, or published itself again, or was taken from us: nothing is left to
            # lose.
            state.task_ready(self)
            self.acknowledge()
            return
        record = ledger.find(self.id, patience_seconds=_PATIENCE_SECONDS)
        if record is not None and losses.has_succeeded(record):
            if losses.is_in_chord(record):
                # Telling a chord may take long; the claim has no process now, and is found so.
                state.task_ready(self)
                self.acknowledge()
                return
            ledger.settle(claim, keep_ms=keep_ms(self.task), patience_seconds=_PATIENCE_SECONDS)
            state.task_ready(self)
            self.acknowledge()
            return
        answer = ledger.lose(
            claim,
            Cause.CHILD_LOST,
            max_losses=config.max_losses,
            due_in_ms=config.sweep_ms,
            detail=how_it_ended(exc, self.worker_pid),
            is_unsent=self.reliable_is_let_go,
            patience_seconds=_PATIENCE_SECONDS,
        )
        state.task_ready(self)
        if isinstance(answer, answers.Queued):
            self.reject(requeue=True)
            self._tell_lost(claim, answer.losses, exc)
        elif isinstance(answer, answers.Spent):
            # Before anybody else is told: the result backend may be away.
            self.acknowledge()
            self._tell_lost(claim, answer.losses, exc)
            losses.try_to_announce(self.id)
        else:
            self.acknowledge()

    def _tell_lost(self, claim: Claim, losses: int, exc: WorkerLostError) -> None:
        events.task_lost(
            app=self.app,
            name=self.task.name,
            task_id=self.id,
            attempt=claim.attempt,
            losses=losses,
            cause=Cause.CHILD_LOST,
            worker=claim.worker,
            exception=str(exc),
        )

    def _send(self, kind: str, *, uuid: str, **fields: Any) -> None:
        """Send an event over the worker's own connection, as Celery does."""
        self.send_event(kind, **fields)

    def _claim_for_lost_child(self) -> Claim | None:
        """Claim in the name of a child that died before it could.

        Without it a message that kills its process before the claim (while it is decoded, say)
        would never be counted.
        """
        worker = current_worker()
        if worker is None or self.worker_pid is None:
            return None
        stamp = Stamp.of(self.request_dict)
        properties = self.request_dict.get("properties") or {}
        ledger = reliable_of(self.app).ledger
        request = ClaimRequest(
            task_ref(self.task, self.id),
            epoch=stamp.epoch,
            generation=stamp.generation,
            worker=worker.id,
            token=self.reliable_token,
            pid=self.worker_pid,
            is_over=True,
        )
        answer = ledger.claim(request, patience_seconds=_PATIENCE_SECONDS)
        if isinstance(answer, answers.Unrecorded):
            message = str(properties.get(MESSAGE) or text_as_sent(self.message))
            answer = ledger.claim(request, message=message, patience_seconds=_PATIENCE_SECONDS)
        if isinstance(answer, answers.NoLease):
            # What this worker held belongs to the sweeper now.
            self.reject(requeue=True)
        if not isinstance(answer, answers.Claimed):
            return None
        return request.claim(answer.attempt, answer.losses)

    def _end(self, reason: Reason, exc: Exception, *, is_owed: bool) -> None:
        """End the attempt whose outcome the main process has stored, or owes."""
        try:
            claim = self._claim()
            if claim is None:
                return
            ledger = reliable_of(self.app).ledger
            # What is owed is told from a dead letter.
            if type(self.task).dead_letter or is_owed:
                ledger.bury(
                    claim,
                    reason,
                    exception=one_line(exc),
                    traceback="",
                    is_owed=is_owed,
                    patience_seconds=_PATIENCE_SECONDS,
                )
                if not is_owed:
                    events.task_buried(
                        app=self.app,
                        name=self.task.name,
                        task_id=self.id,
                        reason=reason,
                        attempt=claim.attempt,
                        losses=claim.losses,
                        exception=one_line(exc),
                        is_failure_told=True,
                    )
            else:
                ledger.settle(claim, patience_seconds=_PATIENCE_SECONDS)
        except (LedgerUnavailable, LedgerRefused) as error:
            events.end_not_recorded(name=self.name, task_id=self.id, error=error)
