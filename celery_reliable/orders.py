"""Orders of operators: what is paused, struck or drained, by whom, why and until when.

Pure: a snapshot of what the ledger has, and what it says of a queue, a task and a worker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from celery_reliable.leases import matches

__all__ = ["NO_ORDERS", "Order", "OrderKind", "Orders"]


class OrderKind(str, Enum):
    """What an order stops."""

    #: Workers do not take from the queue.
    PAUSE = "pause"
    #: No attempt of the task begins.
    STRIKE = "strike"
    #: The worker takes nothing new.
    DRAIN = "drain"


@dataclass(frozen=True)
class Order:
    """One order.  Times are milliseconds on the ledger's clock; 0 for none.

    Attributes:
        target: the queue, the task's name, or the worker's nodename, with or without its host;
            ``*``, ``?`` and ``[...]`` stand for others, as in names of files.
        object_id: of a strike: of which object alone, as text; None: of all.
        is_stop: what runs there is stopped, too, where the pool can.
        by: who gave it.
        why: the reason that was given.
        given_ms: when.
        until_ms: when it is over by itself.
        ended_ms: when it ended; what waits for it is being let go.
    """

    id: str
    kind: OrderKind
    target: str
    object_id: str | None = None
    is_stop: bool = False
    by: str = ""
    why: str = ""
    given_ms: int = 0
    until_ms: int = 0
    ended_ms: int = 0

    def is_in_force(self, now_ms: int) -> bool:
        """Whether it holds at a time of the ledger's clock."""
        return not self.ended_ms and (not self.until_ms or now_ms < self.until_ms)

    def names(self, name: str) -> bool:
        """Whether it names a queue, a task or a worker."""
        if self.kind is OrderKind.DRAIN:
            return matches(self.target, name)
        return name == self.target or fnmatchcase(name, self.target)

    @classmethod
    def from_text(cls, order_id: str, text: str) -> Order | None:
        """Return the order in what the ledger has stored; None for what a later release or somebody
        else has written.
        """
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            told = json.loads(text)
            return cls(
                id=order_id,
                kind=OrderKind(told["kind"]),
                target=str(told["target"]),
                object_id=None if told.get("object") is None else str(told["object"]),
                is_stop=bool(told.get("is_stop")),
                by=str(told.get("by") or ""),
                why=str(told.get("why") or ""),
                given_ms=int(told.get("given_ms") or 0),
                until_ms=int(told.get("until_ms") or 0),
                ended_ms=int(told.get("ended_ms") or 0),
            )
        return None


@dataclass(frozen=True)
class Orders:
    """All orders as they were read, the oldest first.

    Attributes:
        version: names what was read; another one is there when an order was given or has ended.
        now_ms: the ledger's time at which they were read.
    """

    version: int = 0
    now_ms: int = 0
    all: tuple[Order, ...] = ()

    def of_queue(self, queue: str, nodename: str, now_ms: int) -> Order | None:
        """Return the order for which a worker takes nothing from a queue; None if there is none.

        An empty *queue*: whether the worker is drained; an empty *nodename*: whether the queue is
        paused.
        """
        names = {OrderKind.PAUSE: queue, OrderKind.DRAIN: nodename}
        meant = ((order, names.get(order.kind)) for order in self.in_force(now_ms))
        return next((order for order, name in meant if name and order.names(name)), None)

    def is_drained(self, nodename: str, now_ms: int) -> bool:
        """Whether a worker takes nothing new."""
        return self.of_queue("", nodename, now_ms) is not None

    @property
    def has_strikes(self) -> bool:
        """Whether a task is struck, or something waits yet that was."""
        return any(one.kind is OrderKind.STRIKE for one in self.all)

    def of_task(self, name: str) -> tuple[Order, ...]:
        """Return the strikes on a task, or on some of its objects, that have not been ended.

        Whether the time of one is over only the server knows.
        """
        return tuple(
            order
            for order in self.all
            if order.kind is OrderKind.STRIKE and not order.ended_ms and order.names(name)
        )

    def in_force(self, now_ms: int) -> tuple[Order, ...]:
        """Return those that hold at a time of the ledger's clock."""
        return tuple(order for order in self.all if order.is_in_force(now_ms))

    def has_ended_strike(self, before: Orders) -> bool:
        """Whether a strike is over that held *before*, each at the time at which it was read."""
        held = {one.id for one in self.in_force(self.now_ms)}
        return any(
            one.kind is OrderKind.STRIKE and one.id not in held
            for one in before.in_force(before.now_ms)
        )

    @classmethod
    def of(cls, found: Mapping[str, Any], now_ms: int) -> Orders:
        """Return the orders in the fields of the ledger's hash."""
        texts = {name: str(text) for name, text in found.items()}
        version = texts.pop("version", "")
        read = (Order.from_text(order_id, text) for order_id, text in texts.items())
        return cls(
            version=int(version) if version.isdecimal() else 0,
            now_ms=now_ms,
            all=tuple(sorted((o for o in read if o), key=lambda one: (one.given_ms, one.id))),
        )


#: Of a ledger in which nobody has given any.
NO_ORDERS = Orders()
