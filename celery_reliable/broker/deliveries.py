"""Messages taken from queues, and a script's call that is sent along with the taking."""

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
