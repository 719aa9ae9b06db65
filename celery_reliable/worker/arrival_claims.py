"""What becomes of a message for which a worker has waited, and of the claim that came with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from celery_reliable import clock
from celery_reliable.app import Reliable
from celery_reliable.broker import Arrival, Delivery, unquoted
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import NextTask, answers
from celery_reliable.log import logger
from celery_reliable.message import headers_as_written, payload_of
from celery_reliable.model import Claim
from celery_reliable.worker.early_claims import EarlyClaim, EarlyClaims
from celery_reliable.worker.patience import PATIENCE_SECONDS

__all__ = ["ArrivalClaims", "AwaitedClaim"]


class AwaitedClaim(Protocol):
    """The claim of a message that was waited for.  Its token is the message's tag, too."""

    token: str
    #: The lease under which it was asked for.
    worker: str
    is_under_way: bool
    is_given_up: bool

    @property
    def answer(self) -> Any:
        """What its claim was answered; None while nothing is known."""

    def give_up(self) -> None:
        """Note that nobody will begin by its claim."""


class ArrivalClaims:
    """Begins by the claims of one worker, or releases them.  For the main loop."""

    def __init__(self, reliable: Reliable, process: WorkerProcess, early: EarlyClaims) -> None:
        self._ledger = reliable.ledger
        self._due_in_ms = reliable.config.sweep_ms
        self._process = process
        self._early = early

    def arrival(
        self, awaited: AwaitedClaim, task: NextTask, is_consumed: Callable[[str], bool]
    ) -> Arrival:
        """Return what has come, with its claim if its task begins at once.

        *is_consumed*: whether what is in a queue may begin here.
        """
        assert task.message is not None
        queue = unquoted(task.queue)
        delivery = Delivery(awaited.token, queue, task.message, awaited.worker)
        try:
            payload = payload_of(task.message)
        except Exception:
            # Whatever decoding raises; who delivers it decodes it again, and handles the error.
            payload = None
        if not isinstance(task.answer, answers.Claimed):
            awaited.is_under_way = False
            return Arrival(delivery, payload, None)
        is_free = is_consumed(queue) and self._process.id == awaited.worker
        if payload is None or not is_free or not self._early.may_begin(payload):
            # A claim was made by the id that the headers have as they are written.
            headers = payload["headers"] if payload else headers_as_written(task.message)
            self._release(awaited, task.answer, headers.get("id", ""))
            return Arrival(delivery, payload, None)
        early = EarlyClaim(
            self._early.request(payload, awaited.token), clock.now(), awaited, task.place
        )
        self._early.watch(awaited.token, early)
        return Arrival(delivery, payload, early)

    def _release(self, awaited: AwaitedClaim, answer: answers.Claimed, task_id: str) -> None:
        """Release a claim by which nothing begins.  Its message stays filed."""
        awaited.give_up()
        if not task_id:
            # Whoever looks at the worker's claims releases it.
            return
        claim = Claim(task_id, answer.attempt, awaited.worker, awaited.token, answer.losses)
        try:
            self._ledger.release(
                claim, due_in_ms=self._due_in_ms, patience_seconds=PATIENCE_SECONDS
            )
        except (LedgerUnavailable, LedgerRefused) as error:
            logger.warning("claim_not_released id=%s error=%s", claim.task_id, error)
            return
        # There is nothing any more of which somebody could ask.
        awaited.is_given_up = False
