"""How attempts are lost on behalf of others, and what a burial owes Celery."""

from __future__ import annotations

import secrets
from typing import Any

from celery import Celery
from celery import states as celery_states
from celery.app.task import Context
from celery.exceptions import TaskRevokedError

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import one_line
from celery_reliable.ledger import Ledger, answers
from celery_reliable.message import context_of
from celery_reliable.model import (
    Cause,
    Claim,
    DeadLetter,
    Due,
    Reason,
    Record,
    State,
    SweepReport,
    Verdict,
    WorkerLease,
)
from celery_reliable.options import keep_ms
from celery_reliable.recovery.announcements import (
    error_of,
    stores_errors,
    stores_results,
    tell_failure,
)
from celery_reliable.results import NOTHING, is_of, marks, may_have_lived_before, seen, tell_chord

__all__ = ["Losses", "how_it_died"]


class Losses:
    """Counts losses of attempts whose own process cannot report them any more."""

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self.app = app
        reliable = reliable_of(app)
        self.config = reliable.config
        self.ledger = ledger

    def lose(
        self,
        claim: Claim,
        cause: Cause,
        report: SweepReport,
        *,
        has_message: bool,
        due_ms: str = "",
        verdict: Verdict | None = None,
        detail: str = "",
    ) -> int:
        """Count a loss; return how many the task has when it is queued again, else 0.

        *due_ms*: only if that is still when it is due; the others as in `Ledger.lose`.
        """
        record = self.ledger.find(claim.task_id)
        is_current = record is not None and record.token == claim.token
        if record is not None and is_current and not due_ms and self.has_succeeded(record):
            if not self._is_chord_told(record):
                # The claim stays, and whoever found it will find it again.
                return 0
            self.ledger.settle(claim, keep_ms=keep_ms(self.app.tasks.get(record.name)))
            return 0
        answer = self.ledger.lose(
            claim,
            cause,
            max_losses=self.config.max_losses,
            due_in_ms=self._due_in_ms(cause, has_message),
            is_taken=True,
            due_ms=due_ms,
            # Other brokers return what a dead worker held, but for what it had acknowledged: of
            # two messages one changes nothing.
            is_unsent=not has_message,
            verdict=verdict,
            detail=detail,
        )
        if (
            not isinstance(answer, answers.Queued | answers.Spent)
            or record is None
            or not is_current
        ):
            return 0
        report.lost += 1
        n_losses = answer.losses
        events.task_lost(
            app=self.app,
            name=record.name,
            task_id=claim.task_id,
            attempt=claim.attempt,
            worker=claim.worker,
            losses=n_losses,
            cause=cause,
            is_counted=verdict is None or verdict.charges(claim.task_id),
        )
        if isinstance(answer, answers.Spent):
            report.buried += 1
            self.try_to_announce(claim.task_id)
            return 0
        return n_losses

    def blame(self, lease: WorkerLease, report: SweepReport) -> None:
        """Count the death of a worker for the task whose message it was opening, or note it where
        that may have been the death of something that it ran.
        """
        record = self.ledger.find(lease.opening_id) if lease.opening_id else None
        if record is None:
            # Its message counts, or nobody does.
            return
        cause = f"{Cause.OPENING.value}: its worker died while it opened the message"
        answer = self.ledger.blame(
            lease,
            f"{cause} ({how_it_died(lease)})",
            max_losses=self.config.max_losses,
            due_in_ms=self.config.queued_ms,
        )
        if not isinstance(answer, answers.Queued | answers.Spent):
            return
        report.lost += 1
        events.task_lost(
            app=self.app,
            name=record.name,
            task_id=record.task_id,
            attempt=record.attempt,
            worker=lease.worker,
            losses=answer.losses,
            cause=Cause.OPENING,
            is_counted=lease.verdict.is_opening,
        )
        if isinstance(answer, answers.Spent):
            report.buried += 1
            self.try_to_announce(record.task_id)

    def _due_in_ms(self, cause: Cause, has_message: bool) -> int:
        """Return when to look that the task is back in its queue."""
        if has_message:
            return self.config.queued_ms
        if cause is Cause.STUCK:
            # Its worker lives, and is to stop it first and say so; then, or when it is declared
            # dead, it is sent from the record.
            return self.config.lease_ms
        # This very pass sends it from the record.
        return 0

    def lose_orphan(self, claim: Claim) -> None:
        """Lose a claim whose process is gone while its worker lives; the next look sends it from
        the record.
        """
        detail = "its process is gone"
        self.lose(claim, Cause.CHILD_LOST, SweepReport(), has_message=False, detail=detail)

    def has_succeeded(self, record: Record) -> bool:
        """Whether Celery stored SUCCESS in this very attempt, before its process died.

        Where results cannot name who stored them, that is known of a first attempt alone, whose id
        nobody had before; any other runs again.
        """
        meta = self._stored_of(record)
        if meta is None or meta.get("status") != celery_states.SUCCESS:
            return False
        if marks(self._backend_of(None)):
            return is_of(meta, record)
        return record.attempt == 1 and not may_have_lived_before(record)

    def is_in_chord(self, record: Record) -> bool:
        """Whether somebody else may wait for the task, who is told only after it is stored."""
        return bool(context_of(self.app, record.message).chord)

    def _is_chord_told(self, record: Record) -> bool:
        """Whether no chord waits for a task whose SUCCESS is stored; tells it so."""
        context = context_of(self.app, record.message)
        if not context.chord:
            return True
        backend = self._backend_of(self.app.tasks.get(record.name))
        try:
            result = backend.get_task_meta(record.task_id, cache=False).get("result")
            return tell_chord(backend, context, celery_states.SUCCESS, result)
        except Exception as exc:
            # Backends raise what their drivers raise.
            events.chord_not_told(task_id=record.task_id, error=exc)
            return False

    def stored_elsewhere(self, record: Record) -> str:
        """Return what is seen of a result that no attempt of ours has stored, as `stored.seen`
        does; empty when that cannot be told.  Workers without the package run queued tasks too, but
        nobody settles them.
        """
        meta = self._stored_of(record)
        return "" if meta is None else seen(meta)

    def has_ended_elsewhere(self, record: Record, stored: str) -> bool:
        """Whether *stored*, of `stored_elsewhere`, proves that a task is over which is queued or
        waits for its canvas.

        What was there when it was last sent again, or replaced, does not.  Nor does what somebody
        may have left who had the id before, until it has been sent once more.
        """
        if stored in ("", NOTHING, record.stored):
            return False
        if record.stored or record.state is State.WAITING:
            return True
        return not record.attempt and not may_have_lived_before(record)

    def _stored_of(self, record: Record) -> dict[str, Any] | None:
        """Return the result that is stored of a task; None when that cannot be told."""
        task = self.app.tasks.get(record.name)
        if record.state is not State.WAITING and (task is None or task.ignore_result):
            return None
        try:
            return dict(self._backend_of(None).get_task_meta(record.task_id, cache=False))
        except Exception as exc:
            # Backends raise what their drivers raise; without an answer nothing is known.
            events.result_not_read(task_id=record.task_id, error=exc)
            return None

    def _backend_of(self, task: Any) -> Any:
        """Return a task's result backend, or the app's."""
        return task.backend if task is not None else self.app.backend

    def store_revoked(self, record: Record) -> None:
        """Store REVOKED, and tell a chord, of a task that was called off and that nobody runs.

        Raises what the backend's driver raises.
        """
        task = self.app.tasks.get(record.name)
        context = context_of(self.app, record.message)
        backend = self._backend_of(task)
        if backend.get_state(record.task_id) in celery_states.READY_STATES:
            # By a worker that heard it too; or it ended just now.
            return
        error = TaskRevokedError("revoked")
        if stores_results(task, context):
            backend.store_result(record.task_id, error, celery_states.REVOKED, request=context)
        tell_chord(backend, context, celery_states.REVOKED, error)

    def try_to_store_revoked(self, record: Record) -> None:
        """The same; what goes wrong is only logged."""
        try:
            self.store_revoked(record)
        except Exception as exc:
            # Backends raise what their drivers raise.
            events.revocation_not_stored(name=record.name, task_id=record.task_id, error=exc)

    def try_to_announce(self, task_id: str) -> None:
        """Announce a burial; when that is not possible now, it stays owed, and due."""
        try:
            self.announce(task_id)
        except Exception as exc:
            # Backends raise what their drivers raise.
            events.burial_not_announced(task_id=task_id, error=exc)

    def _context_of_letter(self, letter: DeadLetter) -> Context:
        """Return the request of a dead letter; of one that kills who reads it, what can be told
        without that.
        """
        if letter.reason is not Reason.LOST:
            return context_of(self.app, letter.message)
        reader = secrets.token_hex(8)
        is_sealed = isinstance(self.ledger.read(letter, reader), answers.Sealed)
        context = context_of(self.app, letter.message, is_sealed=is_sealed)
        if not is_sealed:
            self.ledger.read(letter, reader, is_over=True)
        return context

    def announce(self, task_id: str, due_ms: str = "") -> None:
        """Pay what a burial owes Celery: FAILURE stored, errbacks called, chord and signals told.

        Nothing happens when somebody else has begun to.  *due_ms*: when it was due, as it was seen;
        at first that is when it was buried.
        """
        letter = self.ledger.dead_letter(task_id)
        if letter is None:
            return
        if not letter.is_owed:
            # It was made due by a worker of an older version, which stopped its last attempt.
            self.ledger.announced(task_id, letter.buried_ms)
            return
        # Whoever moves the time is the one who announces; should that fail, it is due again then.
        turn = Due(task_id, due_ms or str(letter.buried_ms))
        answer = self.ledger.postpone(turn, due_in_ms=self.config.queued_ms)
        if not isinstance(answer, answers.Postponed) and not answer.is_repeated:
            return
        task = self.app.tasks.get(letter.name)
        context = self._context_of_letter(letter)
        error = error_of(letter)
        self._backend_of(task).mark_as_failure(
            task_id, error, request=context, store_result=stores_errors(task, context)
        )
        self.ledger.announced(task_id, letter.buried_ms)
        if task is not None:
            tell_failure(task, task_id, error, context)
        events.task_buried(
            app=self.app,
            name=letter.name,
            task_id=task_id,
            reason=letter.reason,
            attempt=letter.attempts,
            losses=letter.losses,
            exception=one_line(error),
        )


def how_it_died(lease: WorkerLease) -> str:
    """Tell people what is known of a worker's death."""
    return f"{lease.cause}, pid {lease.facts.get('pid', '?')}"
