"""Messages taken from queues, and what a channel asks the worker that takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Delivery",
    "Queues",
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
    #: The claim that was made with its taking; None where none was.
    claim: Any = None


@dataclass(unsafe_hash=True)
class Queues:
    """Where a worker, or a process of its pool, takes messages.  Keys are whole."""

    #: The key of the worker's unacked hash.
    unacked: str
    #: The key of the list of unacked hashes, and the hash's name there.
    listed: str
    name: str
    #: The queues' names, as the hash has them.
    names: Sequence[str]
    #: Their lists: for each priority all inboxes in which something may be, and then all lists.
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
    #: Returns how many tasks the worker could begin at once.
    idle_slots: Callable[[], int] = lambda: 1
    #: Makes the steps that take from these queues; with them their tasks are claimed.
    steps: Callable[[Queues], Any] = lambda queues: None
    #: Returns the names of tasks that are claimed as they begin.
    cold: Callable[[], Sequence[str]] = tuple
    #: Ends a claim by which nothing begins.  Its message goes back without it.
    give_up: Callable[[Any], None] = lambda claim: None
    #: Whether processes of the worker's pool may take messages by themselves just now.
    may_work_off: Callable[[], bool] = bool
    #: Has so many of them begin to.  It is given the channel, too.
    work_off: Callable[[Any, int], None] = lambda channel, n_waiting: None
    #: Whether a process of the pool that takes its own messages has taken this one, and goes on.
    is_taken_by_pool: Callable[[str], bool] = lambda tag: False
    #: Called before more messages are taken, and when some were delivered: what can begin does so
    #: before the main loop does anything else.
    hand_over: Callable[[], None] = lambda: None
    #: Called at a shutdown, before everything is given back.
    before_leaving: Callable[[], None] = lambda: None
    #: Called with what is no message of kombu's, to keep it for an operator.  False when it cannot
    #: be kept now.
    on_unreadable: Callable[[Delivery, Exception], bool] = lambda delivery, error: False
