"""What is looked at beside a task's record, so that it can be said why it waits; and the words
for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_reliable.clock import span
from celery_reliable.ledger import Held
from celery_reliable.message import NamedWorkers
from celery_reliable.operations.views import Order, Wait, WaitsFor, Worker
from celery_reliable.operations.words import at, moment

__all__ = ["Seen", "ago", "queue_of", "until", "waits_for"]


@dataclass(frozen=True)
class Seen:
    """What was seen of a task beside its record.

    Attributes:
        queue: that its message was sent to; empty where it cannot be told.
        publisher: its message's ``origin``; empty where it has none.
        eta_ms: of its message, if that lies in the future; 0 for none.
        waits_for_object: its message says that it waits for an object.
        object_key: the object that it waits for, if that can be told.
        object_name: what people call the object that it has or waits for; empty where it has none.
        holder: who has that.
        holders: all who have a place of it, where it stands in line.
        holder_since_ms: since when.
        orders: those by which it may be kept from running, or its queue is.
        worker: of its attempt, or the one that is to stop one; None: the ledger knows none.
        before: how many messages are popped before its own; None: it was not among the first.
        depth: of its queue; None: nobody looked.
        is_in_queue: whether its message was seen in its queue, or may be there.
        fetched_by: the worker that was delivered its message.
        named: which workers may run it, as its message says; None: any.
        call: what its call says in place of its task's options.
        priority: of its message.
        workers: those that there are, of a task that waits for one.
    """

    queue: str = ""
    publisher: str = ""
    eta_ms: int = 0
    waits_for_object: bool = False
    object_key: str = ""
    object_name: str = ""
    holder: Held | None = None
    holders: tuple[str, ...] = ()
    holder_since_ms: int = 0
    orders: tuple[Order, ...] = ()
    worker: Worker | None = None
    before: int | None = None
    depth: int | None = None
    is_in_queue: bool = True
    fetched_by: str = ""
    named: NamedWorkers | None = None
    call: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    workers: tuple[Worker, ...] = ()


def waits_for(
    kind: Wait,
    sentence: str,
    *,
    since_ms: int = 0,
    until_ms: int = 0,
    holder_since_ms: int = 0,
    **more: Any,
) -> WaitsFor:
    """Return why a task waits, by times of the ledger."""
    return WaitsFor(
        kind,
        sentence,
        since=moment(since_ms),
        until=moment(until_ms),
        holder_since=moment(holder_since_ms),
        **more,
    )


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
