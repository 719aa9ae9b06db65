"""Sending tasks that are due: to their queue, or to a worker that may run them."""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.ledger import AS_IT_IS, Ledger, answers
from celery_reliable.message import is_named
from celery_reliable.model import Due, Record, SweepReport
from celery_reliable.publishing import send_all_stored, send_stored
from celery_reliable.recovery.named_tasks import NamedTasks

__all__ = ["Sending"]


class Sending:
    """Sends what a pass, or a limited task's moment, has found to be due."""

    def __init__(self, app: Celery, ledger: Ledger, named: NamedTasks) -> None:
        self._app = app
        self._config = reliable_of(app).config
        self._ledger = ledger
        self._named = named

    def send(self, due: Due, record: Record, report: SweepReport, stored: str = "") -> None:
        """Send a task that is due, unless somebody else has, or it has to wait yet."""
        message = AS_IT_IS
        if is_named(record.message):
            sent = self._named.message_for(record)
            if sent is None:
                self._named.park(due, record)
                return
            message = sent
        answer = self._ledger.resend(
            due, due_in_ms=self._config.queued_ms, stored=stored, message=message
        )
        if isinstance(answer, answers.Held):
            # The worker makes it due once it has stopped the attempt, or is dead within a lease.
            self._ledger.postpone(due, due_in_ms=self._config.lease_ms)
        if not isinstance(answer, answers.Send):
            return
        if message.text:
            self._named.sent(record, message.text)
        report.resent += send_stored(
            self._app,
            self._ledger,
            due.task_id,
            answer,
            again_in_ms=self._config.sweep_ms,
            # What was lost goes first once; a task that is lost again waits behind the others.
            is_first=record.is_limited or (record.is_unsent and record.losses == 1),
        )

    def send_limited(self, found: Sequence[tuple[Due, Record]]) -> None:
        """Send limited tasks whose moment has come, as `send` does, in a few round trips for all.

        They go in front of their queues: they have waited for longer than what stands there, and
        behind it they would be late, and then too many at once.
        """
        plain = [one for one in found if one[1].is_limited and not is_named(one[1].message)]
        told = self._ledger.resend_all([due for due, _ in plain], due_in_ms=self._config.queued_ms)
        send_all_stored(
            self._app,
            self._ledger,
            [
                (due.task_id, answer)
                for (due, _), answer in zip(plain, told, strict=True)
                if isinstance(answer, answers.Send)
            ],
            again_in_ms=self._config.sweep_ms,
            is_first=True,
        )
        held = [
            one for one, answer in zip(plain, told, strict=True) if isinstance(answer, answers.Held)
        ]
        for due, record in [*held, *(one for one in found if one not in plain)]:
            self.send(due, record, SweepReport())
