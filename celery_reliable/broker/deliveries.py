"""What came out of the queues, and what goes to the server with the question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Delivery", "Taken"]


@dataclass(frozen=True)
class Delivery:
    """A message as it came from its queue, and the tag under which it is filed."""

    tag: str
    queue: str
    raw: bytes
    #: Under which lease its worker took it.
    holder: str = ""


class Beside(Protocol):
    """A script's call that somebody else wants to be sent."""

    #: The arguments of EVALSHA.
    call: tuple[Any, ...]

    def hear(self, raw: Any) -> None:
        """Take the server's reply, or the error that it is."""


@dataclass(frozen=True)
class Taken:
    """What came of looking into the queues."""

    deliveries: list[Delivery]
    #: How many more wait there.
    n_waiting: int
