"""The queue that one worker alone consumes, so that a task can be sent to it by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from celery.utils.nodenames import worker_direct

from celery_reliable.app import Reliable
from celery_reliable.options import names_workers

__all__ = ["consume_own_queue"]


def consume_own_queue(w: Any, reliable: Reliable) -> tuple[str, list[Callable[[], Any]]]:
    """Let a worker consume its own queue too, if tasks of its app name workers, or if Celery's
    setting ``worker_direct`` says so; return the queue's name, empty where there is none, and what
    undoes it.
    """
    queue = worker_direct(w.hostname)
    if w.app.conf.worker_direct:
        # Celery has added it by itself.
        return str(queue.name), []
    if not names_workers(w.app):
        return "", []
    queues = w.app.amqp.queues
    queues.select_add(queue)
    return str(queue.name), [
        partial(queues.deselect, [queue.name]),
        partial(queues.pop, queue.name, None),
    ]
