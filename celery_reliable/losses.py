"""How attempts are lost on behalf of others, and what a burial owes Celery."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery
from celery import signals as celery_signals
from celery import states as celery_states
from celery.app.task import Context
from celery.exceptions import TaskRevokedError

from celery_reliable import telling
from celery_reliable.application import reliable_of
from celery_reliable.chords import tell
from celery_reliable.endings import one_line
from celery_reliable.envelope import Envelope
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger
from celery_reliable.ledger.caller import Answer
from celery_reliable.model import (
    Cause,
    Claim,
    DeadLetter,
    Due,
    Reason,
    Record,
    Reply,
    State,
    SweepReport,
    WorkerLease,
)
from celery_reliable.objects import has_object, is_unique, keep_ms, key_of
from celery_reliable.stored import NOTHING, is_of, may_have_lived_before, seen
from celery_reliable.storing import marks

__all__ = ["Losses", "how_it_died"]

logger = logging.getLogger(__name__)


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
        is_counted: bool = True,
        is_death: bool = False,
        is_suspect: bool = False,
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
            task, context = self.app.tasks.get(record.name), _context_of(self.app, record.message)
            self.settle_success(claim, task, context.args, context.kwargs)
            return 0
        answer = self.ledger.lose(
            claim,
            cause,
            max_losses=self.config.max_losses,
            due_in_ms=self._due_in_ms(cause, has_message),
            is_taken=True,
            due_ms=due_ms,
            # Other brokers return what a dead worker held by themselves.
            # Other brokers return what a dead worker held, but for what it had acknowledged: of
            # two messages one changes nothing.
            is_unsent=not has_message,
            is_counted=is_counted,
            is_death=is_death,
            is_suspect=is_suspect,
            detail=detail,
        )
        if record is None or not is_current or answer.reply not in (Reply.QUEUED, Reply.BURIED):
            return 0
        report.lost += 1
        n_losses = int(answer.values[0])
        telling.lost(
            self.app,
            record.name,
            claim,
            losses=n_losses,
            cause=cause.value,
            is_counted=is_counted,
        )
        if answer.reply is Reply.BURIED:
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
            is_counted=lease.died_opening,
        )
        if answer.reply not in (Reply.QUEUED, Reply.BURIED):
            return
        report.lost += 1
        telling.lost(
            self.app,
            record.name,
            Claim(record.task_id, record.attempt, lease.worker, ""),
            losses=int(answer.values[0]),
            cause=Cause.OPENING.value,
            is_counted=lease.died_opening,
        )
        if answer.reply is Reply.BURIED:
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
        return bool(_context_of(self.app, record.message).chord)

    def _is_chord_told(self, record: Record) -> bool:
        """Whether no chord waits for a task whose SUCCESS is stored; tells it so."""
        context = _context_of(self.app, record.message)
        if not context.chord:
            return True
        backend = self._backend_of(self.app.tasks.get(record.name))
        try:
            result = backend.get_task_meta(record.task_id, cache=False).get("result")
            return tell(backend, context, celery_states.SUCCESS, result)
        except Exception as exc:
            # Backends raise what their drivers raise.
            logger.warning("chord_not_told id=%s error=%r", record.task_id, exc)
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
            logger.info("result_not_read id=%s error=%r", record.task_id, exc)
            return None

    def _backend_of(self, task: Any) -> Any:
        """Return a task's result backend, or the app's."""
        return task.backend if task is not None else self.app.backend

    def settle_success(
        self,
        claim: Claim,
        task: Any,
        args: Any,
        kwargs: Any,
        patience_seconds: float | None = None,
    ) -> None:
        """Settle an attempt whose SUCCESS is stored, and keep or free its object."""
        key = self.object_of(claim.task_id, task, args, kwargs)
        if key is not None and keep_ms(task):
            # Before the record goes, so that whoever is killed in between leaves it to be found.
            reliable_of(self.app).locks.keep(
                key, claim, keep_ms=keep_ms(task), patience_seconds=patience_seconds
            )
        self.ledger.settle(claim, object_key=key, patience_seconds=patience_seconds)
        self.free_lock(claim, task, args, kwargs)

    def store_revoked(self, record: Record) -> None:
        """Store REVOKED, and tell a chord, of a task that was called off and that nobody runs.

        Raises what the backend's driver raises.
        """
        task = self.app.tasks.get(record.name)
        context = _context_of(self.app, record.message)
        backend = self._backend_of(task)
        if backend.get_state(record.task_id) in celery_states.READY_STATES:
            # By a worker that heard it too; or it ended just now.
            return
        error = TaskRevokedError("revoked")
        if _stores_results(task, context):
            backend.store_result(record.task_id, error, celery_states.REVOKED, request=context)
        tell(backend, context, celery_states.REVOKED, error)

    def try_to_store_revoked(self, record: Record) -> None:
        """The same; what goes wrong is only logged."""
        try:
            self.store_revoked(record)
        except Exception as exc:
            # Backends raise what their drivers raise.
            logger.warning("revocation_not_stored id=%s error=%r", record.task_id, exc)

    def cancel(
        self,
        record: Record,
        *,
        epoch: str = "",
        is_revoked: bool = False,
        patience_seconds: float | None = None,
    ) -> Answer:
        """Call off the task of a record that nobody runs, and free the object that it has, in one
        step: what was left locked would stay until somebody else wants it.
        """
        task = self.app.tasks.get(record.name)
        key = None
        if has_object(task) and (record.attempt or is_unique(task)):
            context = _context_of(self.app, record.message)
            key = self.object_of(record.task_id, task, context.args, context.kwargs)
        return self.ledger.cancel(
            record.task_id,
            epoch=epoch,
            is_revoked=is_revoked,
            object_key=key,
            patience_seconds=patience_seconds,
        )

    def free_lock_of(self, record: Record) -> None:
        """Free what a task that is over has left locked, as its record said."""
        task = self.app.tasks.get(record.name)
        if record.attempt or is_unique(task):
            context = _context_of(self.app, record.message)
            # Not in the name of the attempt, of which something may still run.
            claim = Claim(record.task_id, record.attempt, "", "")
            self.free_lock(claim, task, context.args, context.kwargs)

    def free_lock(self, claim: Claim, task: Any, args: Any, kwargs: Any) -> None:
        """Free the lock of a task that ended for good without its own process.

        A last attempt that ended before it came to the lock left it to one before.
        """
        key = self.object_of(claim.task_id, task, args, kwargs)
        if key is None:
            return
        try:
            reliable_of(self.app).locks.free(key, claim, is_over=True, patience_seconds=1.0)
        except ReliableError as exc:
            # Nobody is kept out by it: a lock whose holder is gone is taken over.
            logger.info("lock_not_freed id=%s error=%s", claim.task_id, exc)

    def object_of(self, task_id: str, task: Any, args: Any, kwargs: Any) -> str | None:
        """Return the name of the lock that a task may have; None if it has none, or that fails."""
        if not has_object(task):
            return None
        try:
            return key_of(task, args, kwargs)
        except ReliableError as exc:
            # Then no attempt of it has taken a lock.
            logger.info("object_not_told id=%s error=%s", task_id, exc)
            return None

    def try_to_announce(self, task_id: str) -> None:
        """Announce a burial; when that is not possible now, it stays owed, and due."""
        try:
            self.announce(task_id)
        except Exception as exc:
            # Backends raise what their drivers raise.
            logger.warning("burial_not_announced id=%s error=%r", task_id, exc)

    def _context_of_letter(self, letter: DeadLetter) -> Context:
        """Return the request of a dead letter; of one that kills who reads it, what can be told
        without that.
        """
        if letter.reason is not Reason.LOST:
            return _context_of(self.app, letter.message)
        reader = secrets.token_hex(8)
        is_sealed = self.ledger.read(letter, reader).reply is Reply.SEALED
        context = _context_of(self.app, letter.message, is_sealed=is_sealed)
        if not is_sealed:
            self.ledger.read(letter, reader, is_over=True)
        return context

    def announce(self, task_id: str, due_ms: str = "") -> None:
        """Pay what a burial owes: its object freed, and to Celery FAILURE stored, errbacks called,
        chord and signals told.

        Nothing happens when somebody else has begun to.  *due_ms*: when it was due, as it was seen;
        at first that is when it was buried.
        """
        letter = self.ledger.dead_letter(task_id)
        if letter is None:
            return
        if not letter.is_owed:
            # Its last attempt has been stopped by now.
            record = self.ledger.find(task_id)
            if record is not None:
                self.free_lock_of(record)
            self.ledger.announced(task_id, letter.buried_ms)
            return
        # Whoever moves the time is the one who announces; should that fail, it is due again then.
        turn = Due(task_id, due_ms or str(letter.buried_ms))
        answer = self.ledger.postpone(turn, due_in_ms=self.config.queued_ms)
        if answer.reply is not Reply.POSTPONED and not answer.is_repeated:
            return
        task = self.app.tasks.get(letter.name)
        context = self._context_of_letter(letter)
        if context.args is not None and (letter.attempts or is_unique(task)):
            # First: the result backend may be away.  What is still to be stopped keeps its object.
            claim = Claim(task_id, letter.attempts, "", "")
            self.free_lock(claim, task, context.args, context.kwargs)
        error = _error_of(letter)
        self._backend_of(task).mark_as_failure(
            task_id, error, request=context, store_result=_stores_errors(task, context)
        )
        self.ledger.announced(task_id, letter.buried_ms)
        if task is not None:
            _tell_failure(task, task_id, error, context)
        telling.buried(
            self.app,
            letter.name,
            task_id,
            letter.reason,
            attempt=letter.attempts,
            losses=letter.losses,
            exception=one_line(error),
        )


def _error_of(letter: DeadLetter) -> Exception:
    error: Exception
    if letter.reason is Reason.TIME_LIMIT:
        error = TimeLimitExceeded(letter.exception)
    else:
        error = WorkerLostError(
            f"lost {letter.losses} times ({letter.exception}): every attempt ended without an "
            "outcome; dead-lettered"
        )
    return error


def _stores_results(task: Any, context: Context) -> bool:
    ignored = context.get("ignore_result")
    return not (getattr(task, "ignore_result", False) if ignored is None else ignored)


def _stores_errors(task: Any, context: Context) -> bool:
    if task is None:
        return True
    # Each publication may say it, as in Celery's own Request.
    ignored = context.get("ignore_result")
    ignored = task.ignore_result if ignored is None else ignored
    return not ignored or bool(task.store_errors_even_if_ignored)


def _tell_failure(task: Any, task_id: str, error: Exception, context: Context) -> None:
    """Send Celery's own signal, with the request where receivers look for it."""
    task.request_stack.push(context)
    try:
        celery_signals.task_failure.send(
            sender=task,
            task_id=task_id,
            exception=error,
            args=context.args,
            kwargs=context.kwargs,
            traceback=None,
            einfo=None,
        )
    finally:
        task.request_stack.pop()


def how_it_died(lease: WorkerLease) -> str:
    """Tell people what is known of a worker's death."""
    return f"{lease.cause}, pid {lease.facts.get('pid', '?')}"


def _context_of(app: Celery, message: str, *, is_sealed: bool = False) -> Context:
    """Return the request that a stored message would have had, as far as it can be read.

    *is_sealed*: its body is not to be read, so callbacks and chord are not told.
    """
    envelope = Envelope.from_text(message)
    fields: dict[str, Any] = dict(envelope.headers)
    fields.update(
        reply_to=envelope.properties.get("reply_to"),
        correlation_id=envelope.properties.get("correlation_id"),
        delivery_info={"exchange": envelope.exchange, "routing_key": envelope.routing_key},
    )
    if is_sealed:
        return Context(fields, called_directly=False)
    try:
        args, kwargs, embed = envelope.decoded(app.conf.accept_content)
        fields.update(embed or {}, args=args, kwargs=kwargs)
    except Exception as exc:
        logger.warning("message_not_readable id=%s error=%r", envelope.task_id, exc)
    return Context(fields, called_directly=False)
