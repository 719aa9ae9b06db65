"""Messages taken from queues, and what a channel asks the worker that takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Arrival",
    "Delivery",
    "Queues",
    "Taken",
    "WorkerHooks",
]


@dataclass(frozen=True)
class Delivery:
    """A message as it came from its queue, and the tag under which it is filed."""

    tag: str
    queue: str
    raw: bytes
    #: Names the lease under which its worker took it.
    holder: str = ""


@dataclass(frozen=True)
class Arrival:
    """A message that was filed as it left its queue."""

    delivery: Delivery
    #: As it was read already; None if it could not be.
    payload: dict[str, Any] | None
    #: The claim that was made with its filing, if its task begins at once.
    early: Any


@dataclass(frozen=True)
class Taken:
    """The result of one look into the queues."""

    deliveries: list[Delivery]
    #: How many more wait there.
    n_waiting: int


@dataclass(unsafe_hash=True)
class Queues:
    """Where a process of a worker takes messages by itself.  Keys are whole."""

    #: The key of the worker's unacked hash.
    unacked: str
    #: The key of the list of unacked hashes, and the hash's name there.
    listed: str
    name: str
    #: The queues' names, as the hash has them.
    names: Sequence[str]
    #: Their lists: all of the first priority, then all of the next.
    lists: Sequence[str]
    #: Names of tasks that are not claimed as their messages are taken.
    cold: Sequence[str] = ()


@dataclass(frozen=True)
class WorkerHooks:
    """Functions of a worker, called by the channel that it consumes from.  The defaults are those
    of a channel without a worker.
    """

    #: Returns the lease under which the worker takes messages.
    holder: Callable[[], str] = str
    #: Returns the delivery tags of what the worker runs.
    running_tags: Callable[[], set[str]] = set
    #: Whether an order of an operator keeps the worker from beginning what is in a queue.
    is_held_back: Callable[[str], bool] = lambda queue: False
    #: Returns how many tasks the worker could begin at once; None for a worker without an event
    #: loop.
    idle_slots: Callable[[], int] | None = None
    #: Returns how many messages the worker may fetch now, whether it can begin them at once or not;
    #: None: as many as its prefetch count allows.
    room: Callable[[], int | None] = lambda: None
    #: Whether so much waits in the worker that nothing more need be waited for.
    is_supplied: Callable[[], bool] = bool
    #: Called with the channel and with how many messages wait: processes of the worker's pool may
    #: take them by themselves from now on.
    work_off: Callable[[Any, int], None] = lambda channel, n_waiting: None
    #: Whether a process of the pool that takes its own messages has taken this one, and goes on.
    is_taken_by_pool: Callable[[str], bool] = lambda tag: False
    #: Waits for messages that are filed as they leave their queue (`worker.arrivals`); None: the
    #: worker pops them.
    arrivals: Any = None
    #: Called before a message is opened that came back from a dead worker.  False when it has to be
    #: dropped.
    opening: Callable[[Delivery, dict[str, Any]], bool] = lambda delivery, payload: True
    #: Called when that message was opened.
    opened: Callable[[], None] = lambda: None
    #: Called before more messages are taken, and when some were delivered: what can begin does so
    #: before the main loop does anything else.  True when an idle process was handed something: it
    #: tells when it begins, and the main loop comes back then.
    hand_over: Callable[[], bool] = bool
    #: Called at a shutdown, before everything is given back.
    before_leaving: Callable[[], None] = lambda: None
    #: Called with what is no message of kombu's, to keep it for an operator.  False when it cannot
    #: be kept now.
    on_unreadable: Callable[[Delivery, Exception], bool] = lambda delivery, error: False
