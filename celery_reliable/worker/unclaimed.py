"""Messages whose tasks are not claimed as they are taken, as they come from another broker than the
ledger's.  One that came back is claimed before it is opened; what a broker that does not wait for
ever delivered long ago is let go of.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from celery_reliable import clock
from celery_reliable.app import Reliable, reliable_of
from celery_reliable.attempt import fetched_requests, running_requests
from celery_reliable.compat import note, noted
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable, ReliableError
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import Stamp
from celery_reliable.model import Claim, ClaimRequest, EarlyClaim
from celery_reliable.options import is_reliable, task_ref
from celery_reliable.worker.claims import PATIENCE_SECONDS
from celery_reliable.worker.special_tasks import SpecialTasks

__all__ = ["LongDeliveries", "claimed_first"]


def claimed_first(
    reliable: Reliable,
    process: WorkerProcess,
    special_tasks: SpecialTasks,
    handle: Callable[[Any], None],
) -> Callable[[Any], None]:
    """Return *handle* of a consumer that has claimed nothing, before which the task of a
    redelivered message is claimed.

    The main process decodes a body before its task begins.  Should it die of that, the claim is
    lost with the worker, so that such a message does not end one worker after the other.  A task
    that may still have to wait is claimed as it begins.
    """

    def on_message(message: Any) -> None:
        headers = message.headers if isinstance(message.headers, dict) else {}
        is_back = bool((message.delivery_info or {}).get("redelivered"))
        stamp, name = Stamp.of(headers), headers.get("task")
        task = reliable.app.tasks.get(name) if is_back and stamp.generation else None
        if task is None or not is_reliable(task) or special_tasks.may_wait(headers):
            handle(message)
            return
        asked_at = clock.now()
        request = ClaimRequest(
            task_ref(task, str(headers.get("id") or ""), headers),
            stamp.epoch,
            stamp.generation,
            worker=process.id,
            token=secrets.token_hex(8),
            pid=process.pid,
        )
        try:
            answer = reliable.ledger.claim(request, patience_seconds=PATIENCE_SECONDS)
        except (LedgerUnavailable, LedgerRefused) as exc:
            # Should the worker die now, its death is put down to nothing.
            logger.warning("not_claimed_first id=%s error=%s", request.task.id, exc)
            handle(message)
            return
        if isinstance(answer, answers.Dead | answers.Alone):
            logger.info("delivery_dropped id=%s reply=%s", request.task.id, answer.word)
            message.ack_log_error(logger, ())
            return
        if isinstance(answer, answers.Claimed):
            early = EarlyClaim(
                answer.attempt,
                answer.losses,
                request.worker,
                request.token,
                asked_at,
                answer.place,
            )
            note(message, "claim", early)
        handle(message)

    return on_message


class LongDeliveries:
    """Lets go of what one consumer was delivered long ago, on a broker without unacked hashes; for
    its main loop.

    RabbitMQ closes a channel whose consumer does not acknowledge within its ``consumer_timeout``,
    which ends the worker.  A task's record has its message.  So what runs for long is acknowledged
    before it has ended, and what waits for long behind it goes back to its queue.
    """

    def __init__(self, c: Any, give_up: Callable[[Claim], None]) -> None:
        """*give_up*: releases a claim by which nothing begins."""
        self._consumer, self._give_up = c, give_up
        self._reliable = reliable_of(c.app)
        #: What was acknowledged and still runs.
        self._running: list[Any] = []
        #: All processes run such tasks: the worker consumes nothing.
        self._is_busy = False

    def look(self) -> None:
        """Let go of what has been here for as long as a lease lasts."""
        before = clock.now() - self._reliable.config.lease_seconds
        active = running_requests()
        for request in {*active, *fetched_requests()}:
            is_held = is_reliable(request.task) and not (
                request.reliable_is_let_go or request.acknowledged
            )
            if not is_held or request.reliable_received_at >= before:
                continue
            if request in active:
                self._acknowledge(request)
            else:
                logger.info("delivery_given_back name=%s id=%s", request.name, request.id)
                early: EarlyClaim | None = noted(request.message, "claim")
                if early is not None:
                    # Else nobody else could begin it, and it would count as lost here.
                    self._give_up(early.of(request.id))
                # The request stays in this worker too: whoever claims the task first runs it.
                request.let_go(requeue=True)
        ended = [request for request in self._running if request not in active]
        if ended:
            self._running = [request for request in self._running if request in active]
            if self._is_busy:
                self._is_busy = False
                self._consumer.task_consumer.consume()
                ended.pop()
            self._consumer.qos.increment_eventually(len(ended))
            self._consumer.qos.update()
        if self._is_busy:
            self._consume_nothing()

    def _acknowledge(self, request: Any) -> None:
        try:
            record = self._reliable.ledger.find(request.id, patience_seconds=PATIENCE_SECONDS)
        except ReliableError as exc:
            logger.warning("claim_not_seen id=%s error=%s", request.id, exc)
            return
        # Only this delivery's own claim proves that there is a record which brings the task back.
        if record is None or record.token != request.reliable_token:
            return
        logger.info("long_task_acknowledged name=%s id=%s", request.name, request.id)
        # Else the broker would deliver another message in its place.
        qos = self._consumer.qos
        if qos.value > 1:
            qos.decrement_eventually()
            qos.update()
        else:
            # A prefetch count of 0 would mean that there is no limit.
            self._is_busy = True
            self._consume_nothing()
        self._running.append(request)
        request.let_go()

    def _consume_nothing(self) -> None:
        """Again at each look, as an order that ends has the worker consume."""
        consumer = self._consumer.task_consumer
        # The broker deletes a queue of that kind, with what waits there, when nobody consumes it.
        if not any(queue.auto_delete for queue in consumer.queues):
            consumer.cancel()
