"""What Celery does when a worker's main loop turns, done without waiting for that.

A turn may take a second, as the loop sleeps while nothing happens; and where several messages are
delivered in one turn, what each of them changes is to count for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

__all__ = ["acknowledge_at_once", "raise_prefetch_count"]

#: What an acknowledgement of Celery's calls, as it names them.
_ACKNOWLEDGING = frozenset({"ack_log_error", "reject_log_error"})


def acknowledge_at_once(c: Any) -> None:
    """Let what the main loop's thread acknowledges not wait for the loop's next turn.

    In a solo pool that comes when the task has ended; and of what ends as it is delivered (it is
    expired, or revoked) no more would be taken in one turn than may be prefetched.
    """
    name = "call_soon_ack" if hasattr(c, "call_soon_ack") else "call_soon"
    later, loop = getattr(type(c), name), get_ident()

    def soon(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        is_acknowledged = getattr(function, "__name__", "") in _ACKNOWLEDGING
        if is_acknowledged and get_ident() == loop:
            return function(*args, **kwargs)
        return later(c, function, *args, **kwargs)

    setattr(c, name, soon)


def raise_prefetch_count(c: Any) -> None:
    """Let what waits for its ETA be held besides what is prefetched."""
    if c.qos.prev != c.qos.value:
        c.qos.update()
