"""Messages taken from queues, and a script's call that is sent along with the taking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Arrival", "Arrivals", "Awaited", "Beside", "Delivery", "Queues", "Taken"]


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
class Arrival:
    """A message that was filed as it left its queue."""

    delivery: Delivery
    #: As it was read already; None if it could not be.
    payload: dict[str, Any] | None
    #: The claim that was made with its filing, if its task begins at once.
    early: Any


class Awaited(Protocol):
    """A message that is waited for, as its worker sees it."""

    @property
    def call(self) -> tuple[Any, ...]:
        """The arguments of EVALSHA, of a script that takes from an inbox."""

    def hear(self, raw: Any, is_consumed: Callable[[str], bool]) -> Arrival | None:
        """Take the script's reply; return what has come, if anything.

        *is_consumed*: whether what is in a queue may begin here.
        """

    def fail(self, *, is_unknown: bool) -> None:
        """Note that the script was not run, as the server does not know it (*is_unknown*), or has
        failed.
        """

    def lose(self, seconds: float) -> None:
        """Note that the connection was lost: nobody knows whether a message was filed.  Until it
        has seen the end of the connection, the server waits for so many seconds.
        """


class Arrivals(Protocol):
    """What the channel asks a worker that waits for arrivals."""

    @property
    def may_wait(self) -> bool:
        """Whether the server lets it wait like that."""

    def left_out(self) -> Sequence[str]:
        """Return the names of tasks whose messages are filed and not claimed."""

    def next(self, where: Queues) -> Awaited | None:
        """Return the next message to wait for; None when that cannot be now."""

    @property
    def has_lost(self) -> bool:
        """Whether the connection of a wait was lost, and nobody knows whether something came."""

    def look(self, where: Queues, is_consumed: Callable[[str], bool]) -> Iterator[Arrival]:
        """Yield what has come for waits whose connection was lost.  *is_consumed*: as in `hear`."""

    def note_priorities(self) -> None:
        """Note that messages wait in lists of other priorities."""

    def refuse(self, error: Exception) -> None:
        """Note that the server has refused a part of the wait."""


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
