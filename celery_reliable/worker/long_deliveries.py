"""Deliveries that last, on a broker without unacked hashes.

RabbitMQ closes a channel whose consumer does not acknowledge within its `consumer_timeout`, which
ends the worker.  A task's record has its message, so what runs for long is acknowledged before it
has ended; and what waits for long behind it goes back to its queue.
"""

from __future__ import annotations

from typing import Any

from celery_reliable import clock
from celery_reliable.app import reliable_of
from celery_reliable.compat.request import fetched_requests, running_requests
from celery_reliable.exceptions import ReliableError
from celery_reliable.log import logger
from celery_reliable.options import is_reliable
from celery_reliable.worker.patience import PATIENCE_SECONDS

__all__ = ["LongDeliveries"]


class LongDeliveries:
    """Lets go of what one consumer was delivered long ago; for its main loop."""

    def __init__(self, c: Any) -> None:
        self._consumer = c
        self._reliable = reliable_of(c.app)
        #: What was acknowledged and still runs.
        self._running: list[Any] = []

    def look(self) -> None:
        """Let go of what has been here for ACKNOWLEDGE_SECONDS."""
        before = clock.now() - self._reliable.config.acknowledge_seconds
        active = running_requests()
        for request in active:
            if _is_held(request) and request.reliable_received_at < before:
                self._acknowledge(request)
        for request in fetched_requests():
            is_waiting = request not in active and _is_held(request)
            if is_waiting and request.reliable_received_at < before:
                logger.info("delivery_given_back name=%s id=%s", request.name, request.id)
                # The request stays in this worker too: whoever claims the task first runs it.
                request.let_go(requeue=True)
        self._count_ended(active)

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
        request.let_go()
        qos = self._consumer.qos
        # The broker would deliver another message in its place.  A prefetch count of 0 would mean
        # that there is no limit, so the last one stays.
        if qos.value > 1:
            qos.decrement_eventually()
            qos.update()
            self._running.append(request)

    def _count_ended(self, active: list[Any]) -> None:
        ended = [request for request in self._running if request not in active]
        if ended:
            self._running = [request for request in self._running if request in active]
            self._consumer.qos.increment_eventually(len(ended))
            self._consumer.qos.update()


def _is_held(request: Any) -> bool:
    return is_reliable(request.task) and not (request.reliable_is_let_go or request.acknowledged)
