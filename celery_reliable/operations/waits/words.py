"""How the sentences name workers, queues and times."""

from __future__ import annotations

from celery_reliable.clock import span
from celery_reliable.operations.times import at
from celery_reliable.operations.waits.seen import Seen

__all__ = ["ago", "queue_of", "until"]


def queue_of(seen: Seen) -> str:
    """The queue of a message, as far as it is known."""
    return f"the queue {seen.queue!r}" if seen.queue else "its queue"


def ago(now_ms: int, since_ms: int) -> str:
    """How long ago something was."""
    return span((now_ms - since_ms) / 1000)


def until(until_ms: int, now_ms: int) -> str:
    """When something will be, and in how long that is."""
    left_seconds = (until_ms - now_ms) / 1000
    return f"{at(until_ms)} ({f'in {span(left_seconds)}' if left_seconds > 0 else 'now'})"
