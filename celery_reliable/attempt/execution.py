"""Running one attempt: claim, lock, Celery's own tracer, settle.

Celery calls ``task.__trace__`` for every execution, in children, threads, greenlets and in the solo
pool, and never for eager or direct calls.  `around` puts itself around that tracer, so that no hook
which a user overrides can switch the protection off.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from celery import states
from celery.app.task import Context
from celery.exceptions import Ignore, Reject
from celery.worker import state as worker_state

from celery_reliable import events
from celery_reliable.app import Reliable, reliable_of
from celery_reliable.attempt.delivery import DELIVERY, MESSAGE, claimed_early
from celery_reliable.attempt.object_lock import leave, take
from celery_reliable.attempt.outcomes import ended, instead, raising, returning
from celery_reliable.attempt.replacement import adopt
from celery_reliable.attempt.time_limits import time_to_run, uninterrupted
from celery_reliable.compat.tracer import Traced, Tracer
from celery_reliable.context import RunningAttempt, current_worker, is_current, running
from celery_reliable.exceptions import (
    LedgerForbidden,
    LedgerRefused,
    LedgerUnavailable,
    ObjectBusy,
    ObjectIdError,
    ReliableError,
    one_line,
)
from celery_reliable.ledger import FOREVER, Ledger, answers
from celery_reliable.message import HEIR, Envelope, Stamp, from_request
from celery_reliable.model import Cause, Claim, ClaimRequest, Reason
from celery_reliable.options import keep_ms, task_ref
from celery_reliable.publishing import resend
from celery_reliable.results import tell_chord_patiently

__all__ = ["around"]

_LONGEST_CONFLICT_WAIT_SECONDS = 30.0
#: The header that counts how often a task has waited for its object; it waits longer each time.
_WAITS, _MOST_WAITS = "reliable_waits", 6
#: The pause after an attempt without an outcome doubles so often.
_MOST_DOUBLINGS = 5


def around(task: Any, tracer: Tracer) -> Tracer:
    """Return *tracer* with claim and settlement around it."""

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Traced:
        execution = _Execution(
            task, tracer, uuid, args, kwargs, request if request is not None else {}
        )
        return execution.run()

    return trace


class _Execution:
    """One delivery of one message, in the process that runs it."""

    def __init__(
        self, task: Any, tracer: Tracer, uuid: str, args: Any, kwargs: Any, request: dict[str, Any]
    ) -> None:
        self.task = task
        self.tracer = tracer
        self.id = uuid
        self.args = args
        self.kwargs = kwargs
        self.request = request
        self.stamp = Stamp.of(request)
        self.is_adopted = not self.stamp.generation

    @property
    def reliable(self) -> Reliable:
        return reliable_of(self.task.app)

    @property
    def ledger(self) -> Ledger:
        return self.reliable.ledger

    def run(self) -> Traced:
        """Run the attempt, or end the delivery without one."""
        with uninterrupted():
            return self._run()

    def _run(self) -> Traced:
        if current_worker() is None or self.reliable.is_unprotected:
            # Somebody traces without a worker (a test harness): there is no lease to claim under.
            return self.tracer(self.id, self.args, self.kwargs, self.request)
        try:
            claim = self._claim()
        except LedgerUnavailable as exc:
            return self._unprotected(exc)
        except LedgerForbidden as exc:
            # Somebody else may be allowed to run it, or this worker again.
            events.not_claimed(task=self.task, task_id=self.id, error=exc)
            return ended(Reject(f"not claimed: {exc}", requeue=True), states.REJECTED)
        except LedgerRefused as exc:
            # Its record, if it has one, is looked at again.
            events.not_claimed(task=self.task, task_id=self.id, error=exc)
            return ended(Ignore(f"not claimed: {exc}"), states.IGNORED)
        if not isinstance(claim, Claim):
            return self._without_attempt(claim)
        if claim.attempt > self.stamp.attempt + 1:
            self._tell_redelivered(claim)
        attempt = RunningAttempt(claim, self.stamp, self.is_adopted)
        token = running.set(attempt)
        try:
            return self._attempted(attempt)
        except Exception as exc:
            # Whatever we did wrong around the body must not fail the task and acknowledge it.
            return self._left(attempt, exc)
        finally:
            running.reset(token)
            self._send_unsent(attempt)

    def _tell_redelivered(self, claim: Claim) -> None:
        """Say where Celery does that this publication was begun before, and lost.

        The broker knows of that only when it returned the message by itself; and the last member of
        a canvas goes on with the numbers of its host.
        """
        delivery = self.request.get("delivery_info") or {}
        if claim.losses or delivery.get("redelivered"):
            self.request["delivery_info"] = {**delivery, "redelivered": True}
            events.task_recovered(
                app=self.task.app,
                name=self.task.name,
                task_id=self.id,
                attempt=claim.attempt,
                losses=claim.losses,
                worker=claim.worker,
            )

    def _send_unsent(self, attempt: RunningAttempt) -> None:
        """Send what the attempt published under its own id, now that nothing of it runs."""
        if attempt.unsent is None:
            return
        try:
            resend(self.task.app, attempt.unsent)
        except Exception as exc:
            # It is recorded.
            events.send_left_to_sweeper(name=self.task.name, task_id=self.id, error=exc)

    # -- claim

    def _claim(self) -> answers.ClaimAnswer | Claim:
        """Claim, waiting for the worker's lease, and for the ledger as long as it takes.

        With FAIL_OPEN, only for a lease: then LedgerUnavailable is raised.
        """
        config = self.reliable.config
        patience_seconds = config.lease_seconds if config.fail_open else FOREVER
        worker = current_worker()
        assert worker is not None
        properties = self.request.get("properties") or {}
        early = claimed_early(worker, self.id, properties)
        if early is not None:
            return early
        token = str(properties.get(DELIVERY) or secrets.token_hex(8))
        for name in worker.turns_to_claim():
            request = ClaimRequest(
                task_ref(self.task, self.id),
                epoch=self.stamp.epoch,
                generation=self.stamp.generation,
                worker=name,
                token=token,
                pid=os.getpid(),
            )
            answer = self.ledger.claim(request, patience_seconds=patience_seconds)
            if isinstance(answer, answers.Unrecorded):
                self.is_adopted = True
                answer = self.ledger.claim(
                    request, message=self._message(properties), patience_seconds=patience_seconds
                )
            if isinstance(answer, answers.Claimed):
                return request.claim(answer.attempt, answer.losses)
            if not isinstance(answer, answers.NoLease):
                break
        return answer

    def _message(self, properties: Mapping[str, Any]) -> str:
        return str(properties.get(MESSAGE) or self._as_delivered().to_text())

    def _as_delivered(self) -> Envelope:
        request = {**self.request, "id": self.id, "task": self.task.name}
        return from_request(request, self.args, self.kwargs, self.task.serializer or "json")

    def _unprotected(self, exc: Exception) -> Traced:
        """Run without a claim, as FAIL_OPEN says, and end the record when the ledger is back."""
        events.task_unprotected(task=self.task, task_id=self.id, error=exc)
        result = self.tracer(self.id, self.args, self.kwargs, self.request)
        if result.info is None or result.info.state not in (states.RETRY, states.REJECTED):
            self.ledger.cancel(self.id, epoch=self.stamp.epoch, patience_seconds=FOREVER)
        return result

    def _without_attempt(self, answer: answers.ClaimAnswer) -> Traced:
        """End a delivery that may not run.  Dropping it is safe: the record outlives the
        message.
        """
        events.delivery_dropped(name=self.task.name, task_id=self.id, reply=answer.word)
        if isinstance(answer, answers.Stale) and not self.stamp.epoch and self.request.get(HEIR):
            # It is stale only as nobody has recorded it.
            message = self._message(self.request.get("properties") or {})
            ref = task_ref(self.task, self.id)
            try:
                if adopt(self.ledger, ref, message, str(self.request[HEIR])):
                    events.publication_adopted(name=self.task.name, task_id=self.id)
            except ReliableError as exc:
                return ended(Reject(f"not recorded: {exc}", requeue=True), states.REJECTED)
        if isinstance(answer, answers.NoLease):
            # Not acknowledged: what this worker held belongs to the sweeper now.
            return ended(Reject("this worker was declared dead", requeue=True), states.REJECTED)
        return ended(Ignore(f"not run: {answer.word}"), states.IGNORED)

    # -- the attempt

    def _attempted(self, attempt: RunningAttempt) -> Traced:
        try:
            holder = take(self.task, attempt, self.args, self.kwargs)
        except ObjectIdError as exc:
            return self._conclude(attempt, self._instead(raising(exc)))
        if holder == "":
            return self._without_lock(attempt)
        if holder is not None:
            return self._conflict(attempt, holder)
        return self._traced(attempt)

    def _without_lock(self, attempt: RunningAttempt) -> Traced:
        """Go on with an attempt whose record is not its own: the server lost it, or it is taken."""
        if is_current(self.ledger, attempt):
            return self._traced(attempt)
        attempt.is_closed = True
        events.task_fenced(
            task=self.task, task_id=self.id, attempt=attempt.claim.attempt, state="taken"
        )
        return ended(Ignore("taken from this worker"), states.IGNORED)

    def _traced(self, attempt: RunningAttempt) -> Traced:
        try:
            with time_to_run(self.task, attempt):
                result = self.tracer(self.id, self.args, self.kwargs, self.request)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as exc:
            # The worker is being stopped or this task was terminated; the main process says how it
            # ends.  Queued again, the task walks back into its own lock.
            if self._is_ended_by_worker():
                raise
            return self._no_outcome(attempt, exc)
        except BaseException as exc:
            # How a greenlet is stopped.  Celery takes the silence after it for a success.
            if type(exc).__name__ == "GreenletExit" and self._is_ended_by_worker():
                return self._released(attempt)
            # Celery could not store an outcome: the attempt ends without one.
            events.outcome_not_stored(task=self.task, task_id=self.id, error=exc)
            return self._no_outcome(attempt, exc)
        return self._conclude(attempt, result)

    def _is_ended_by_worker(self) -> bool:
        """Whether somebody else reports how an interrupted attempt ended.

        In the main process itself (threads, solo, greenlets) that is so at a shutdown only: a task
        that calls `sys.exit` there is reported by nobody.
        """
        worker = current_worker()
        is_child = worker is not None and os.getpid() != worker.pid
        # Exit codes, 0 among them, once a shutdown has begun.
        signs = (worker_state.should_stop, worker_state.should_terminate)
        requests = [worker_state.requests.get(self.id), *worker_state.active_requests]
        if any(getattr(r, "reliable_is_cancelled", False) and r.id == self.id for r in requests):
            return True
        return is_child or any(sign is not None and sign is not False for sign in signs)

    # -- how it ended

    def _conclude(self, attempt: RunningAttempt, result: Traced) -> Traced:
        """Tell the ledger what Celery has stored."""
        if attempt.is_closed or attempt.is_replaced:
            leave(self.task, attempt)
        if attempt.is_closed:
            return result
        claim, info = attempt.claim, result.info
        state = states.SUCCESS if info is None else info.state
        retval = result.retval if info is None else info.retval
        if claim.attempt > 1 and state in (states.SUCCESS, states.FAILURE):
            tell_chord_patiently(self.task.backend, {**self.request, "id": self.id}, state, retval)
        answer: answers.ReplaceAnswer | answers.BuryAnswer | answers.SettleAnswer
        if state == states.IGNORED and attempt.is_replaced:
            answer = self.ledger.replace(
                claim,
                due_in_ms=self.reliable.config.queued_ms,
                stored=attempt.stored,
                members=attempt.members,
                patience_seconds=FOREVER,
            )
        elif state == states.REJECTED and getattr(retval, "requeue", False):
            # Who sends himself back has no outcome either, and must not do so for ever.
            return self._no_outcome(attempt, retval or Reject())
        elif state in (states.FAILURE, states.REJECTED) and type(self.task).dead_letter:
            reason = Reason.FAILED if state == states.FAILURE else Reason.REJECTED
            answer = self.ledger.bury(
                claim,
                reason,
                exception=one_line(retval),
                traceback=str(getattr(result.retval, "traceback", "") or ""),
                patience_seconds=FOREVER,
            )
            if isinstance(answer, answers.Buried):
                events.task_buried(
                    app=self.task.app,
                    name=self.task.name,
                    task_id=self.id,
                    reason=reason,
                    attempt=claim.attempt,
                    losses=claim.losses,
                    exception=one_line(retval),
                    is_failure_told=True,
                )
        else:
            keep = keep_ms(self.task) if info is None else 0
            answer = self.ledger.settle(claim, keep_ms=keep, patience_seconds=FOREVER)
        # A canvas that was quicker than its host has taken the id over already.
        if isinstance(answer, answers.Fenced | answers.Gone) and not attempt.is_replaced:
            leave(self.task, attempt)
            events.task_fenced(
                task=self.task,
                task_id=self.id,
                attempt=claim.attempt,
                state=answer.state if isinstance(answer, answers.Fenced) else "gone",
            )
        return result

    def _released(self, attempt: RunningAttempt) -> Traced:
        if attempt.is_closed:
            return ended(Ignore("closed by its own publication"), states.IGNORED)
        self.ledger.release(
            attempt.claim,
            due_in_ms=self.reliable.config.sweep_ms,
            is_unsent=not self.reliable.is_redis_broker,
            patience_seconds=self.reliable.config.lease_seconds,
        )
        return ended(Reject("stopped with its worker", requeue=True), states.REJECTED)

    def _no_outcome(self, attempt: RunningAttempt, exc: BaseException) -> Traced:
        config = self.reliable.config
        leave(self.task, attempt)
        if attempt.is_closed:
            return ended(Ignore("closed by its own publication"), states.IGNORED)
        # What ended so is likely to end so again at once.
        pause_ms = config.sweep_ms * 2 ** min(attempt.claim.losses, _MOST_DOUBLINGS)
        answer = self.ledger.lose(
            attempt.claim,
            Cause.NO_OUTCOME,
            max_losses=config.max_losses,
            due_in_ms=pause_ms,
            is_unsent=True,
            detail=one_line(exc),
            patience_seconds=FOREVER,
        )
        if isinstance(answer, answers.Queued | answers.Spent):
            self._tell_lost(attempt, answer.losses, exc)
        # It is sent from the record when its pause is over.
        return ended(Ignore(f"no outcome: {exc!r}"), states.IGNORED)

    def _tell_lost(self, attempt: RunningAttempt, losses: int, exc: BaseException) -> None:
        events.task_lost(
            app=self.task.app,
            name=self.task.name,
            task_id=self.id,
            attempt=attempt.claim.attempt,
            losses=losses,
            cause=Cause.NO_OUTCOME,
            worker=attempt.claim.worker,
            exception=one_line(exc),
        )

    def _left(self, attempt: RunningAttempt, exc: Exception) -> Traced:
        """End an attempt that could not be concluded: without an outcome, or for want of a right
        with a claim that has no process.

        Such a claim is found as soon as somebody may end it: settled when its success is stored,
        and lost otherwise.
        """
        if not isinstance(exc, LedgerForbidden):
            events.attempt_failed_outside_body(task=self.task, task_id=self.id, error=exc)
            try:
                return self._no_outcome(attempt, exc)
            except LedgerForbidden as forbidden:
                exc = forbidden
        events.attempt_left(task=self.task, task_id=self.id, error=exc)
        return ended(Reject(f"not concluded: {exc}", requeue=True), states.REJECTED)

    # -- the object is another task's

    def _conflict(self, attempt: RunningAttempt, holder: str) -> Traced:
        how = type(self.task).on_conflict
        if how == "skip":
            events.task_skipped(task=self.task, task_id=self.id, holder=holder)
            # Somebody may wait for its result: its caller, or the canvas that it is a member of.
            return self._conclude(attempt, self._instead(returning({"skipped": holder})))
        events.object_held(task=self.task, task_id=self.id, holder=holder, on_conflict=how)
        if how == "fail":
            error = ObjectBusy(
                f"{self.task.name}[{self.id}] needs an object that {holder} holds "
                "(on_conflict='fail').",
                holder=holder,
            )
            return self._conclude(attempt, self._instead(raising(error)))
        return self._retry_conflict(attempt)

    def _retry_conflict(self, attempt: RunningAttempt) -> Traced:
        """Publish the same task again, later; no retry, no loss and no number are spent."""
        told = self.request.get(_WAITS)
        waits = 1 + (told if type(told) is int and 0 <= told < _MOST_WAITS else 0)
        wait = min(0.5 * 2**waits, _LONGEST_CONFLICT_WAIT_SECONDS)
        attempt.is_waiting = True
        context = Context(self.request, args=self.args, kwargs=self.kwargs, called_directly=False)
        publication = self.task.signature_from_request(
            context,
            self.args,
            self.kwargs,
            countdown=wait * random.uniform(0.5, 1.0),
            retries=context.retries,
            headers={**(context.headers or {}), _WAITS: waits},
        )
        try:
            publication.apply_async()
        except Exception as exc:
            events.conflict_not_published(task=self.task, task_id=self.id, error=exc)
            answer = self.ledger.release(
                attempt.claim,
                due_in_ms=self.reliable.config.queued_ms,
                patience_seconds=FOREVER,
            )
            if isinstance(answer, answers.Released):
                return ended(Reject(f"not published again: {exc!r}", requeue=True), states.REJECTED)
        return self._conclude(
            attempt, ended(Ignore("the object is held: published again"), states.IGNORED)
        )

    def _instead(self, body: Callable[..., Any]) -> Traced:
        return instead(self.task, body)(self.id, self.args, self.kwargs, self.request)
