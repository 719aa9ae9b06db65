"""Messages that came back from a dead worker, and may kill the next worker that opens them.

A body is decompressed and decoded in the worker's main process, before anybody has claimed its
task.  So the ledger is told before that which message it is, and after it that the worker lives.
If the worker dies in between, its death is put down to that message, unless something ran there
that may have caused it.  A message that never came back costs none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_reliable.app import Reliable
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import Stamp
from celery_reliable.worker.patience import PATIENCE_SECONDS

__all__ = ["Openings", "noting"]


class Openings:
    """Tells the ledger what the main loop of one worker is about to open."""

    def __init__(self, reliable: Reliable, process: WorkerProcess) -> None:
        self._reliable = reliable
        self._process = process
        #: The worker's id and the delivery that the ledger may have noted, and is to forget.
        self._noted: tuple[str, str] | None = None

    def begin(self, delivery: str, task_id: str, headers: Any) -> bool:
        """Note that a message is about to be opened; False when it is to be dropped, since its task
        is a dead letter, or is sent again later.
        """
        workers = self._reliable.ledger.workers
        self._noted = worker, _ = self._process.id, delivery
        epoch = Stamp.of(headers).epoch
        try:
            answer = workers.open(
                worker,
                delivery,
                task_id,
                epoch,
                max_losses=self._reliable.config.max_losses,
                patience_seconds=PATIENCE_SECONDS,
            )
        except (LedgerUnavailable, LedgerRefused) as exc:
            # Should the worker die now, its death is put down to nothing.
            logger.warning("opening_not_noted id=%s error=%s", task_id, exc)
            return True
        if not isinstance(answer, answers.Opening):
            self._noted = None
        if isinstance(answer, answers.Alone | answers.Dead):
            logger.info("delivery_dropped id=%s reply=%s", task_id, answer.word)
            return False
        return True

    def end(self) -> None:
        """Note that the worker has survived it, now or when the ledger is back."""
        if self._noted is None:
            return
        worker, delivery = self._noted
        try:
            self._reliable.ledger.workers.opened(
                worker, delivery, patience_seconds=PATIENCE_SECONDS
            )
        except (LedgerUnavailable, LedgerRefused) as exc:
            logger.warning("opening_still_noted delivery=%s error=%s", delivery, exc)
            return
        self._noted = None


def noting(openings: Openings, handle: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return *handle* of a consumer whose messages come from no unacked hash, with what was
    redelivered noted as it is opened.
    """

    def on_message(message: Any) -> None:
        if not (message.delivery_info or {}).get("redelivered"):
            handle(message)
            return
        headers = message.headers if isinstance(message.headers, dict) else {}
        if not openings.begin(str(message.delivery_tag), str(headers.get("id") or ""), headers):
            message.ack_log_error(logger, ())
            return
        try:
            handle(message)
        finally:
            openings.end()

    return on_message
