"""What a worker does for the orders of operators, beside not taking what they hold back: it gives
back what it has not begun, stops what is to be stopped, and ends what was revoked as it ran.

The heartbeat hears of them; all of this is done by the main loop.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable import events
from celery_reliable.attempt import running_requests
from celery_reliable.compat import note, noted
from celery_reliable.compat.consumer import QueuesHeldBack, Slots, hand_over_by
from celery_reliable.context import WorkerProcess
from celery_reliable.log import logger
from celery_reliable.model import Claim
from celery_reliable.options import is_of_object, is_reliable
from celery_reliable.orders import NO_ORDERS, Order

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "LOOKING_POOLS",
    "OrderKeeping",
]

#: The pools that are handed only what they begin at once, so that the look comes just before.
#: Threads and greenlets are handed all that is taken.
LOOKING_POOLS = frozenset({"prefork", "solo"})


def _is_ours(request: Any, process: WorkerProcess) -> bool:
    """Whether nobody else can have a request's message; in doubt the unacked hash is asked.

    The sweeper may have returned what a worker had been delivered that was away for longer than its
    lease.  A reliable task's claim finds that out, and a plain task has none.
    """
    message = request.message
    holder = noted(message, "holder")
    if holder is None or is_reliable(request.task):
        return True
    if process.surely_holds(holder):
        return True
    # A message that is acknowledged as its task begins is removed now, so that nobody returns it
    # in between.
    return bool(
        message.channel.qos.unacked.keep(message.delivery_tag, is_begun=not request.task.acks_late)
    )


class OrderKeeping:
    """Keeps the orders that one worker has heard of."""

    def __init__(self, w: Any, step: WorkerStep) -> None:
        self._worker, self._slots = w, Slots(w)
        self._step = step
        self._process = step.process
        self._is_redis = step.reliable.is_redis_broker
        #: Which claims of this worker were revoked and are to be ended, as the last beat had it.
        self.to_end: list[tuple[Claim, str]] = []
        #: Requests that were told to end, by the token of their claim, and how.
        self._told: dict[str, tuple[Any, str]] = {}
        self._queues: QueuesHeldBack | None = None
        #: The orders at the last look.
        self._before = NO_ORDERS

    def install(self) -> None:
        """Look at each request before it is handed to the pool, and never after.

        To be called after the pool is made, and before the consumer is.
        """

        self._hand_over = hand_over_by(self._worker, self._process_task)

    def _process_task(self, request: Any) -> None:
        if noted(request.message, "given_back"):
            # If it waited for its ETA, Celery's timer has only now reserved it.  Otherwise the
            # worker would count this slot as taken for ever.
            state.task_ready(request)
            self._slots.free()
        elif self._order_against(request) is not None:
            self._give_back(request)
            self._slots.free()
        else:
            note(request.message, "handed", True)
            if _is_ours(request, self._process):
                self._hand_over(request)
            else:
                self._drop(request)

    def _drop(self, request: Any) -> None:
        """Forget a request whose message was taken from this worker."""
        logger.info("delivery_dropped name=%s id=%s reply=taken", request.name, request.id)
        state.task_ready(request)
        request.acknowledged = True
        request.message.channel.qos.forget(request.message.delivery_tag)
        self._slots.free()

    def begin(self, c: Any) -> None:
        """Begin anew with a connection of the consumer, before it consumes."""
        self._queues = None if self._is_redis else QueuesHeldBack(c)
        self._consume()

    def look(self, c: Any) -> bool:
        """Do what is to be done now; return whether a strike is over of which that was not known
        before.
        """
        self._end_revoked(c)
        self._consume()
        if self._process.orders.all:
            self._give_back_unbegun()
            self._stop(c)
        else:
            self._process.given_back.clear()
        orders = replace(self._process.orders, now_ms=self._process.ledger_ms)
        before, self._before = self._before, orders
        return orders.has_ended_strike(before)

    # -- queues

    def _consume(self) -> None:
        """Where the broker delivers by itself, tell it what the worker consumes."""
        if self._queues is not None:
            self._queues.hold_back(lambda queue: self._process.order_against(queue) is not None)

    def _order_against(self, request: Any) -> Order | None:
        """Return the order for which a request that has not begun is to be given back."""
        if not self._process.orders.all:
            return None
        return self._process.order_against(self._queue_of(request.message))

    def _queue_of(self, message: Any) -> str:
        queue = noted(message, "queue")
        if queue is None and self._queues is not None:
            queue = self._queues.of_tag((message.delivery_info or {}).get("consumer_tag"))
        return str(queue or (message.delivery_info or {}).get("routing_key") or "")

    # -- what has not begun

    def _give_back_unbegun(self) -> None:
        # The newest first, as each goes in front of the others.
        for request in reversed(list(state.requests.values())):
            message = request.message
            if (
                request in state.active_requests
                or noted(message, "given_back")
                or self._order_against(request) is None
            ):
                continue
            if noted(message, "handed"):
                is_claimed = noted(message, "claim") is not None
                if (
                    self._step.pool_name in LOOKING_POOLS
                    or is_claimed
                    or not is_reliable(request.task)
                ):
                    # It begins in this moment; or nobody could take it back.
                    continue
                self._process.given_back.add(request.reliable_token)
            self._give_back(request)

    def _give_back(self, request: Any) -> None:
        """Give back the message of a request that has not begun, to the place that it had."""
        message, name, task_id = request.message, request.name, request.id
        note(message, "given_back", True)
        early = noted(message, "claim")
        if early is not None:
            self._step.claims.give_up(early.of(task_id))
        state.task_ready(request)
        request.acknowledged = True
        try:
            if self._is_redis:
                message.channel.qos.give_back(message.delivery_tag)
            else:
                message.requeue()
        except Exception as exc:
            # The connection was lost.  Then the message comes back without this.
            logger.warning("fetched_not_given_back name=%s id=%s error=%s", name, task_id, exc)
            return
        logger.debug("given_back_by_order name=%s id=%s", name, task_id)

    # -- what runs

    def _stop(self, c: Any) -> None:
        """Stop what runs against an order that says so, without a loss."""
        for request in running_requests():
            order = self._order_to_stop(request)
            if order is None or not getattr(request, "reliable_token", None):
                continue
            if request.reliable_is_cancelled or request.reliable_is_taken:
                continue
            if self._step.pool_name != "prefork" or request.worker_pid in (None, os.getpid()):
                continue
            events.stopped_by_order(task=request.task, task_id=request.id, order=order.id)
            # Its record is sent again, and waits like the others then.
            request.let_go()
            request.cancel(c.pool, signal.SIGKILL, emit_retry=False)

    def _order_to_stop(self, request: Any) -> Order | None:
        """Return an order by which a request that runs is to be stopped; None if there is none."""
        if not is_reliable(request.task):
            return None
        held, now_ms = self._order_against(request), self._process.ledger_ms
        if held is not None and held.is_stop:
            return held
        for order in self._process.orders.of_task(request.name):
            if order.is_stop and order.is_in_force(now_ms) and self._is_of(request, order):
                return order
        return None

    def _is_of(self, request: Any, order: Order) -> bool:
        if order.object_id is None:
            return True
        try:
            args, kwargs, *_ = request.message.payload
        except Exception:
            # Of a content that only its process can read.
            return False
        return is_of_object(request.task, order.object_id, args, kwargs)

    def _end_revoked(self, c: Any) -> None:
        """End what was revoked as it ran: as Celery's own command does, but by the claim."""
        to_end = {claim.token: how for claim, how in self.to_end}
        self._told = {token: one for token, one in self._told.items() if token in to_end}
        for request in running_requests():
            how = to_end.get(getattr(request, "reliable_token", ""))
            if how is not None and request.reliable_token not in self._told:
                self._told[request.reliable_token] = request, how
                try:
                    request.terminate(c.pool, signal.SIGKILL if how == "kill" else signal.SIGTERM)
                except NotImplementedError:
                    # A pool of threads, or a solo one: it runs to its end, and not again.
                    about = request.name, request.id, self._step.pool_name
                    logger.warning("not_stopped name=%s id=%s pool=%s", *about)
        for token, (request, how) in list(self._told.items()):
            if how != to_end[token]:
                self._told[token] = request, to_end[token]
                if to_end[token] == "kill" and request.worker_pid not in (None, os.getpid()):
                    c.pool.terminate_job(request.worker_pid, signal.SIGKILL)
