"""One delivery in the worker's main process, which ends an attempt whose process cannot.

Celery calls `on_failure` of a custom request for everything but success, and `on_timeout`,
`acknowledge` and `reject`; it never calls its `on_success` or `execute_using_pool`.
"""

from __future__ import annotations

import secrets
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.exceptions import InvalidTaskError
from celery.signals import task_revoked
from celery.worker import state
from kombu.utils.encoding import safe_repr
from kombu.utils.imports import symbol_by_name

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.attempt import DELIVERY, EARLY, MESSAGE
from celery_reliable.compat import noted
from celery_reliable.compat.consumer import OpenRequest
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.log import logger
from celery_reliable.message import Stamp, text_as_sent
from celery_reliable.model import EarlyClaim
from celery_reliable.options import is_reliable
from celery_reliable.publishing import CARRIERS
from celery_reliable.worker import claims
from celery_reliable.worker.claims import end_child, end_lost

__all__ = [
    "ReliableRequest",
    "strategy",
]


def strategy(task: Any, app: Any, consumer: Any, **options: Any) -> Any:
    """Return what takes the messages of such a task: a stamped one is the twin's."""
    twin = app.tasks[CARRIERS[task.name]]
    take_own, take_twins = (
        symbol_by_name(twin.Strategy)(one, app, consumer, **options) for one in (task, twin)
    )

    def take(message: Any, *args: Any, **kwargs: Any) -> Any:
        if not Stamp.of(message.headers).generation:
            return take_own(message, *args, **kwargs)
        # By its name a process of the pool finds the task.
        message.headers["task"] = twin.name
        return take_twins(message, *args, **kwargs)

    return take


#: With what a child ends that was stopped on purpose.
_STOPPED = (Terminated, WorkerLostError, SystemExit, KeyboardInterrupt)


def _raised(exc_info: Any) -> BaseException:
    """Return the exception itself: billiard wraps one that a process has sent."""
    sent = exc_info.exception
    exc: BaseException = sent.exc if isinstance(sent, ExceptionWithTraceback) else sent
    return exc


class ReliableRequest(OpenRequest):
    """One delivery of a reliable task's message, in the main process."""

    #: The claim was taken from this worker and its process is being stopped.
    reliable_is_taken = False
    #: The attempt is being stopped to run again; its claim will be released.
    reliable_is_cancelled = False
    #: Its message was acknowledged, or given back, though the attempt had not ended.
    reliable_is_let_go = False
    #: False: its process died before it had decoded the message, or as it did so.
    reliable_is_opened = True
    #: The pool has told of a hard time limit by `on_failure`.
    reliable_is_over_limit = False

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(message, *args, **kwargs)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            # Anything else that is raised here ends the worker, and then the next one.
            raise InvalidTaskError(f"no message of a task: {exc!r}") from exc
        #: By the clock of `clock`.
        self.reliable_received_at = clock.now()
        early: EarlyClaim | None = noted(message, "claim")
        #: The token of the claim, which this worker or the task's process makes.
        self.reliable_token = early.token if early is not None else secrets.token_hex(8)
        if not self.is_ours:
            return
        if "id" not in message.headers:
            raise InvalidTaskError("it is of Celery's protocol 1, which has no headers")
        properties = {**(self.request_dict.get("properties") or {}), DELIVERY: self.reliable_token}
        # Set to None too: what a sender has put there could pass for a claim, or for the message.
        properties[EARLY] = early and tuple(early)
        is_known = bool(Stamp.of(message.headers).generation)
        properties[MESSAGE] = None if is_known else text_as_sent(message) or None
        self.request_dict["properties"] = properties

    @property
    def is_ours(self) -> bool:
        """Whether the ledger knows, or is to know, of the task."""
        return is_reliable(self.task) and not reliable_of(self.app).is_unprotected

    @property
    def eta(self) -> Any:
        """The ETA of a message that waits in this worker for it; None of one that the ledger knows,
        which waits there.
        """
        return None if self.is_ours and Stamp.of(self.message.headers).epoch else super().eta

    # -- letting go of the message

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

    # -- ends that only the main process sees

    def on_failure(
        self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Count the loss of a killed child; everything else is as in Celery."""
        exc = _raised(exc_info)
        self.reliable_is_over_limit = isinstance(exc, TimeLimitExceeded)
        if self.reliable_is_taken:
            # Its successor owns the task: nothing of this attempt may be stored or given back.
            state.task_ready(self)
            self.acknowledge()
            return
        if not self.is_ours:
            super().on_failure(exc_info, send_failed_event, return_ok)
            return
        # Celery's own note of a cancellation is missing where the hook or the backend has raised.
        if (self.reliable_is_cancelled or self.is_revoked) and isinstance(exc, _STOPPED):
            state.task_ready(self)
            # A worker that ends at once releases all that is to run again.
            if self.is_revoked or not state.should_terminate:
                claims.end_stopped(self)
            return
        is_untold = isinstance(exc, MemoryError) and not return_ok
        if is_untold or isinstance(exc, Terminated) or not isinstance(exc, Exception):
            # Celery would take a process that was stopped for a task that somebody revoked, though
            # the signal may have been meant for the task before this one.
            exc_info = claims.lost_worker(exc)
            exc = _raised(exc_info)
        if isinstance(exc, WorkerLostError) and not state.should_terminate:
            self._lost(exc)
        elif isinstance(exc, TimeLimitExceeded) and not state.should_terminate:
            self._over_limit(exc_info, exc, send_failed_event, return_ok)
        elif not self._try_to_fail(exc_info, send_failed_event, return_ok):
            # The attempt has told the ledger; nothing else would ever let go of the message.
            self.acknowledge()

    def _lost(self, exc: BaseException) -> None:
        try:
            is_called_off = self.id in state.revoked and claims.own_record(self) is not None
            if is_called_off and self.revoked():
                # Run again, it could meet workers that have forgotten the revocation.
                return
            with events.through(self._send):
                end_lost(self, exc)
        except (LedgerUnavailable, LedgerRefused) as error:
            # The claim stays in the ledger, and is found as no process runs it.  The message must
            # not stay here, or it would look as if this worker still held the task.  If it comes
            # back too early it is refused, and the record is sent again.
            state.task_ready(self)
            self.reject(requeue=True)
            logger.error("loss_not_counted name=%s id=%s error=%s", self.name, self.id, error)

    def _over_limit(
        self, exc_info: Any, exc: Exception, send_failed_event: bool, return_ok: bool
    ) -> None:
        """Store the failure of an attempt whose process is stopped, and then bury it."""
        # billiard stops the process only when hooks and receivers have returned, and before Celery
        # calls those it forgets the request.
        end_child(self.worker_pid)
        with claims.ending(self.reliable_token), events.through(self._send):
            if self.is_revoked:
                state.task_ready(self)
                claims.end_stopped(self)
            elif claims.may_fail(self):
                is_owed = not self._try_to_fail(exc_info, send_failed_event, return_ok)
                claims.end_over_limit(self, exc_info, exc, is_owed=is_owed)
            else:
                # It has ended at the very moment of its limit.
                self._lost(exc)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Leave a hard limit to `on_failure`, which a pool of processes calls before this: Celery
        would tell of the failure once more, and also of an attempt that has ended in time.
        """
        if soft or not self.is_ours:
            super().on_timeout(soft, timeout)
        elif not self.reliable_is_over_limit:
            # A greenlet that did not come as far as its body, or not out of its end.
            self._lost(TimeLimitExceeded(timeout))

    def _try_to_fail(self, exc_info: Any, send_failed_event: bool, return_ok: bool) -> bool:
        """Let Celery store a failure; False when it could not."""
        exc = _raised(exc_info)
        if isinstance(exc, MemoryError):
            # Celery would raise it in this process, which has only read of it.
            state.task_ready(self)
            self.acknowledge()
            self.send_event("task-failed", exception=safe_repr(exc), traceback=exc_info.traceback)
            return True
        try:
            super().on_failure(exc_info, send_failed_event, return_ok)
        except Exception as error:
            logger.error("failure_not_stored name=%s id=%s error=%s", self.name, self.id, error)
            return False
        return True

    def on_retry(self, exc_info: Any) -> None:
        """Call off what was revoked while it ran: nobody may remember that when its ETA comes."""
        super().on_retry(exc_info)
        if self.is_ours and self.id in state.revoked:
            self.revoked()

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Stop the attempt at a cold shutdown, or as its connection was lost."""
        self.reliable_is_cancelled = True
        try:
            super().cancel(pool, signal, emit_retry)
        except Exception as error:
            if not self.is_ours:
                raise
            # The task's hook, which Celery calls after the stop.  Celery 5.6 would end the worker.
            logger.error("stop_not_reported name=%s id=%s error=%s", self.name, self.id, error)

    def announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Let Celery store REVOKED, then end the record too."""
        if not self.is_ours:
            super().announce_revoked(reason, terminated, signum, expired)
            return
        try:
            super().announce_revoked(reason, terminated, signum, expired)
        except Exception as error:
            # Raised into the main loop it would pass for a lost connection to the broker, or end
            # the worker: again and again, as nobody has acknowledged the message.
            logger.error("revocation_not_stored name=%s id=%s error=%s", self.name, self.id, error)
            self.acknowledge()
            self.is_revoked = True
            if expired:
                # Its record is sent again when it is overdue, and expires again.
                return
            fields = {"terminated": terminated, "signum": signum, "expired": expired}
            task_revoked.send(sender=self.task, request=self.context, **fields)
        try:
            claims.end_revoked(self, expired=expired)
        except (LedgerUnavailable, LedgerRefused) as error:
            logger.error(
                "revocation_not_recorded name=%s id=%s error=%s", self.name, self.id, error
            )

    def _send(self, kind: str, *, uuid: str, **fields: Any) -> None:
        """Send an event over the worker's own connection, as Celery does."""
        self.send_event(kind, **fields)
