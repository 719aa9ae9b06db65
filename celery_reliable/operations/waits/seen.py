"""What is looked at beside a task's record, so that it can be said why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_reliable.ledger import Held
from celery_reliable.message import NamedWorkers
from celery_reliable.operations.workers import WorkerView
from celery_reliable.orders import Order

__all__ = ["Seen"]


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
    worker: WorkerView | None = None
    before: int | None = None
    depth: int | None = None
    is_in_queue: bool = True
    fetched_by: str = ""
    named: NamedWorkers | None = None
    call: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    workers: tuple[WorkerView, ...] = ()
