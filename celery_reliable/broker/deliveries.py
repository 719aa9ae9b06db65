"""Messages taken from queues, and a script's call that is sent along with the taking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Beside", "Delivery", "Queues", "Taken"]


@dataclass(frozen=True)
class Delivery:
    """A message as it came from its queue, and the tag under which it is filed."""

    tag: str
    queue: str
    raw: bytes
    #: Names the lease under which its worker took it.
    holder: str = ""


class Beside(Protocol):
    """A script's call that goes to the server in the same round trip."""

    #: The arguments of EVALSHA.
    call: tuple[Any, ...]

    def hear(self, raw: Any) -> None:
        """Take the server's reply, which may be an error object."""


@dataclass(frozen=True)
class Taken:
    """The result of one look into the queues."""

    deliveries: list[Delivery]
    #: How many more wait there.
    n_waiting: int


@dataclass(frozen=True)
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
