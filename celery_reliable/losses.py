"""How attempts are lost on behalf of others, and what a burial owes Celery."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery import states as celery_states
from celery.app.task import Context
from celery.exceptions import BackendError
from kombu.compression import decompress
from kombu.serialization import loads as deserialize
from kombu.serialization import prepare_accept_content

from celery_reliable import signals
from celery_reliable.application import reliable_of
from celery_reliable.envelope import Envelope
from celery_reliable.ledger import Ledger
from celery_reliable.model import Cause, Claim, Reason, Record, Reply, SweepReport

__all__ = ["Losses"]

logger = logging.getLogger(__name__)


class Losses:
    """Counts losses of attempts whose own process cannot report them any more."""

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self.app = app
        self.config = reliable_of(app).config
        self.ledger = ledger

    def lose(self, claim: Claim, cause: Cause, report: SweepReport, *, has_message: bool) -> bool:
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
            self.announce(claim.task_id)
            return False
        return True

    def lose_orphan(self, claim: Claim) -> None:
        """Lose a claim whose process is gone while its worker lives; the next look sends it from
        the record.
        """
        self.lose(claim, Cause.CHILD_LOST, SweepReport(), has_message=False)

    def _has_succeeded(self, record: Record) -> bool:
        """Whether Celery stored SUCCESS before the process died."""
        task = self.app.tasks.get(record.name)
        if task is None or task.ignore_result:
            return False
        return bool(self.stored_state(record.task_id) == celery_states.SUCCESS)

    def stored_state(self, task_id: str) -> str | None:
        """Return the state that the result backend has of a task; None when it cannot tell."""
        try:
            return str(self.app.backend.get_task_meta(task_id, cache=False)["status"])
        except (BackendError, NotImplementedError, AttributeError, OSError, KeyError):
            return None

    def announce(self, task_id: str) -> None:
        """Pay what a burial owes Celery: FAILURE stored, errbacks called, chord told."""
        letter = self.ledger.dead_letter(task_id)
        if letter is None:
            return
        if not letter.is_owed:
            self.ledger.announced(task_id, letter.buried_ms)
            return
        task = self.app.tasks.get(letter.name)
        error = RuntimeError(
            f"lost {letter.losses} times ({letter.exception}): every attempt ended without an "
            "outcome; dead-lettered"
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
        body = envelope.body
        if envelope.headers.get("compression"):
            body = decompress(body, envelope.headers["compression"])
        args, kwargs, embed = deserialize(
            body,
            envelope.content_type,
            envelope.content_encoding,
            accept=prepare_accept_content(app.conf.accept_content),
        )
        fields.update(embed or {}, args=args, kwargs=kwargs)
    except Exception as exc:
        logger.warning("message_not_readable id=%s error=%r", envelope.task_id, exc)
    return Context(fields, called_directly=False)
