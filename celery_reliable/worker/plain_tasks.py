"""Plain tasks of a worker that was away for longer than its lease.

The sweeper may have returned what such a worker had been delivered, and others may run it.  A
reliable task's claim finds that out.  A plain task has no claim: before it is handed to the pool,
its message is looked for in the worker's unacked hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.worker import state

from celery_reliable.compat.consumer import free_slot, hand_over_by
from celery_reliable.compat.notes import noted
from celery_reliable.context import WorkerProcess
from celery_reliable.log import logger
from celery_reliable.options import is_reliable

__all__ = ["LOOKING_POOLS", "install"]

#: The pools that are handed only what they begin at once, so that the look comes just before.
#: Threads and greenlets are handed all that is fetched.
LOOKING_POOLS = frozenset({"prefork", "solo"})


def install(w: Any, process: WorkerProcess) -> None:
    """Look at each request before it is handed to the worker's pool, and never after.

    To be called after the pool is made, and before the consumer is.
    """

    def around(hand_over: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def process_task(request: Any) -> None:
            if _is_ours(request, process):
                hand_over(request)
                return
            logger.info("delivery_dropped name=%s id=%s reply=taken", request.name, request.id)
            state.task_ready(request)
            request.acknowledged = True
            request.message.channel.qos.forget(request.message.delivery_tag)
            free_slot(w)

        return process_task

    hand_over_by(w, around)


def _is_ours(request: Any, process: WorkerProcess) -> bool:
    """Whether nobody else can have a request's message; in doubt the unacked hash is asked."""
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
