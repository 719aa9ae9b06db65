"""What a worker was delivered and cannot begin: it goes back to the front of its queue.

Nobody who is idle has to ask for it, and nobody is asked whether he is idle: what waits in a worker
for a second waits as well in its queue, in its old place, where whoever is free first takes it.
After that the worker fetches only what it begins at once, until it has begun ten times as many as
went back; and then no more than it begins within such a time.  So messages do not go to and fro: in
the long run at most every tenth goes back.  A worker whose tasks are short never gets that far.

Who gives back has nothing any more that could begin here: a request is taken out of the place in
which it waits before anybody else can have its message.  What is claimed stays.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

from celery.worker import state

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.attempt import fetched_requests, running_requests
from celery_reliable.broker import WorkerUnacked
from celery_reliable.compat.consumer import Slots
from celery_reliable.compat.kombu import list_key, priority_of
from celery_reliable.compat.notes import note, noted
from celery_reliable.compat.pool import futures_of
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import ReliableError
from celery_reliable.log import logger
from celery_reliable.options import is_reliable
from celery_reliable.worker.claims import PATIENCE_SECONDS

__all__ = [
    "LongDeliveries",
    "Unbegun",
]

#: In how many looks a message has waited for long enough.
_LOOKS = 4
#: So many tasks begin before more is fetched than begins at once, for each message that went back.
_BEGUN_FOR_EACH = 10


class Unbegun:
    """Looks at what waits in one worker whose main loop knows when a slot is free; for that loop.

    What it knows outlives a connection.
    """

    def __init__(
        self, w: Any, process: WorkerProcess, seconds: float, *, is_blocking: bool
    ) -> None:
        """Look at worker *w*, in which nothing is to wait longer than *seconds*.  *is_blocking*:
        its main loop runs the tasks, so that it cannot look meanwhile.
        """
        self._worker = w
        self._process = process
        self._seconds = seconds
        #: How often it wants to look.
        self.every_seconds = seconds / _LOOKS
        self._is_blocking = is_blocking
        self._pool_slots, self._threads = Slots(w), futures_of(w.pool)
        #: Since when each request waits.
        self._since: dict[Any, float] = {}
        #: How many tasks had begun at the last looks.
        self._begun: deque[tuple[float, int]] = deque([(time.monotonic(), _begun())])
        #: Whether no more is fetched than the pool begins.
        self._is_sparing = is_blocking
        #: Before so many tasks have begun, no more is fetched than begins at once.
        self._unlimited_from = 0

    def room(self) -> int | None:
        """Return how many messages may be fetched now; None: as many as may be prefetched."""
        if not self._is_sparing:
            return None
        return max(0, self._slots + self._pace() - len(state.reserved_requests))

    def look(self, c: Any, unacked: WorkerUnacked) -> None:
        """Give back what has waited for too long at consumer *c*, and all that came after it."""
        if c.task_consumer is None:
            # It connects.
            return
        now = time.monotonic()
        self._begun.append((now, _begun()))
        while now - self._begun[1][0] >= self._seconds:
            self._begun.popleft()
        waiting = self._waiting()
        self._since = {one: self._since.get(one, now) for one in waiting}
        if not self._is_blocking:
            # Only what is slow has to spare others.
            is_busy = len(state.reserved_requests) >= self._slots
            is_slow = self._pace() < (c.task_consumer.channel.qos.prefetch_count or math.inf)
            self._is_sparing = is_slow and (is_busy or self._is_sparing)
        longest = max((now - since for since in self._since.values()), default=0.0)
        # A pop of its own that is on its way would take them, and lasts a second.
        is_popping = c.task_consumer.channel.is_waiting and longest < 2 * self._seconds
        if longest >= self._seconds and not is_popping and not unacked.is_leaving:
            self._give_back(c, unacked, waiting)

    @property
    def _slots(self) -> int:
        return int(self._worker.pool.num_processes)

    def _pace(self) -> int:
        """How many tasks are likely to begin in the time that may be waited, beside those that run
        already.
        """
        if _begun() < self._unlimited_from:
            return 0
        since, begun = self._begun[0]
        seconds = max(time.monotonic() - since, self._seconds)
        return max(0, int((_begun() - begun) * self._seconds / seconds) - self._slots)

    def _waiting(self) -> list[Any]:
        """Return the requests that can be taken back from where they wait, the oldest first."""
        self._threads[:] = [
            (one, future)
            for one, future in self._threads
            if not (future.running() or future.done())
        ]
        found = [args[0] for _, args, _ in self._pool_slots.waiting]
        found += [one for one, _ in self._threads]
        # Their messages are in the unacked hash, and nobody has claimed their tasks.
        return [
            one
            for one in found
            if noted(one.message, "queue") is not None and noted(one.message, "early") is None
        ]

    def _take_out(self, requests: list[Any]) -> list[Any]:
        """Take requests out of where they wait; return those that will not begin any more."""
        wanted = set(requests)
        slots = self._pool_slots.waiting
        kept = [one for one in slots if one[1][0] not in wanted]
        found = {one[1][0] for one in slots} & wanted
        slots.clear()
        slots.extend(kept)
        # A future that is not cancelled has begun.
        found |= {one for one, future in self._threads if one in wanted and future.cancel()}
        return [one for one in requests if one in found]

    def _give_back(self, c: Any, unacked: WorkerUnacked, requests: list[Any]) -> None:
        channel = c.task_consumer.channel
        requests = self._take_out(requests)
        messages = [one.message for one in requests]
        places = [(str(one.delivery_tag), _list_of(channel, one)) for one in messages]
        moved = unacked.requeue(places)
        for request, is_gone in zip(requests, moved, strict=True):
            if is_gone:
                state.task_ready(request)
                request.acknowledged = True
                channel.qos.forget(request.message.delivery_tag)
            else:
                # It was taken from this worker, which shows when it is about to begin.
                note(request.message, "queue", None)
                c.on_task_request(request)
        if any(moved):
            self._unlimited_from = _begun() + sum(moved) * _BEGUN_FOR_EACH
            self._is_sparing = True
            events.unbegun_given_back(worker=self._process.id, count=sum(moved))


def _begun() -> int:
    """How many tasks have begun in this process, of every base."""
    return int(state.all_total_count[0])


def _list_of(channel: Any, message: Any) -> str:
    priority = priority_of(channel, {"properties": message.properties})
    return list_key(channel, str(noted(message, "queue")), priority)


class LongDeliveries:
    """Lets go of what one consumer was delivered long ago, on a broker without unacked hashes; for
    its main loop.

    RabbitMQ closes a channel whose consumer does not acknowledge within its ``consumer_timeout``,
    which ends the worker.  A task's record has its message.  So what runs for long is acknowledged
    before it has ended, and what waits for long behind it goes back to its queue.
    """

    def __init__(self, c: Any) -> None:
        self._consumer = c
        self._reliable = reliable_of(c.app)
        #: What was acknowledged and still runs.
        self._running: list[Any] = []

    def look(self) -> None:
        """Let go of what has been here for ACKNOWLEDGE_SECONDS."""
        before = clock.now() - self._reliable.config.acknowledge_seconds
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
                # The request stays in this worker too: whoever claims the task first runs it.
                request.let_go(requeue=True)
        ended = [request for request in self._running if request not in active]
        if ended:
            self._running = [request for request in self._running if request in active]
            self._consumer.qos.increment_eventually(len(ended))
            self._consumer.qos.update()

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
