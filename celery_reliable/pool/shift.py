"""A shift: a job of the pool in which a process takes messages by itself."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from celery_reliable.broker import Queues

__all__ = [
    "N_SLOTS",
    "Given",
    "Left",
    "Limited",
    "Report",
    "Shift",
    "begin_limited",
    "call_off_shifts",
    "clear_slot",
    "come_to",
    "end_limited",
    "how_far",
    "limited",
    "means",
    "meant",
    "shifts_called_off",
]


class Given(NamedTuple):
    """The message with which a shift begins: the main process has popped it, and not filed it."""

    #: As the unacked hash has it.
    queue: str
    message: bytes


@dataclass(frozen=True)
class Shift:
    """What a process is told that takes messages by itself."""

    #: What the tags of its messages, and so the tokens of its claims, begin with.
    token: str
    #: Where in shared memory it notes how far it has come.
    slot: int
    #: All in the order in which they are asked first.
    queues: Queues
    #: Whether a queue that has delivered comes last among those of its priority.
    takes_turns: bool
    #: It ends when more was called off than that.
    called_off: int
    #: It takes nothing after so many seconds.
    seconds: float
    #: The ids that were revoked, as far as the worker knows.
    revoked: frozenset[str]
    #: It ends when the process has more memory; 0: no limit.
    max_memory_kb: int = 0
    given: Given | None = None
    #: Whether the main process wants the message of each task that begins.
    tells_messages: bool = False
    #: Soft and hard time limits by the names of tasks, in seconds; 0: none.
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class Left(NamedTuple):
    """A message that a shift has taken, and that the main process has to deal with."""

    tag: str
    queue: str
    message: bytes
    #: What Celery's tracer has returned, for a task that has run.
    outcome: Any = None


@dataclass
class Report:
    """What a shift has done."""

    #: How many tasks have begun, by name.
    begun: dict[str, int] = field(default_factory=dict)
    #: How many failed.
    failed: int = 0
    #: How many deliveries were not run after all.
    not_begun: int = 0
    #: It ended because nothing waits.
    found_nothing: bool = False
    left: Left | None = None
    #: The tag under which a message may have been filed, and its task claimed, as the server has
    #: not answered.
    unsure: str = ""

    @property
    def total(self) -> int:
        """How many tasks have begun."""
        return sum(self.begun.values())


_NUMBER = struct.Struct("=Q")
_RANGE = struct.Struct("=QQ")
#: So many shifts may run at once; a pool of more processes has no more of them.
N_SLOTS = 1024
# Anonymous and shared: made before the children are forked.
_memory = mmap.mmap(-1, _NUMBER.size + N_SLOTS * _RANGE.size)
_SECONDS = struct.Struct("=d")
_LIMITS = struct.Struct("=Qdd")
#: Of a slot: when its task began, the task's number and limits, and whom the last signal was for.
_EACH = 2 * _SECONDS.size + _LIMITS.size
_limited = mmap.mmap(-1, N_SLOTS * _EACH)


def shifts_called_off() -> int:
    """Return how often all shifts were called off."""
    (number,) = _NUMBER.unpack_from(_memory)
    return int(number)


def call_off_shifts() -> None:
    """Let every shift that has begun end after the task that it runs.  For the main process."""
    _NUMBER.pack_into(_memory, 0, shifts_called_off() + 1)


def come_to(slot: int, first: int, last: int) -> None:
    """Note in a shift's slot which of its messages are not done with, by their numbers."""
    _RANGE.pack_into(_memory, _NUMBER.size + slot * _RANGE.size, first, last)


def how_far(slot: int) -> tuple[int, int]:
    """Return what `come_to` has noted."""
    first, last = _RANGE.unpack_from(_memory, _NUMBER.size + slot * _RANGE.size)
    return int(first), int(last)


class Limited(NamedTuple):
    """A task with a time limit that a shift runs."""

    #: By the monotonic clock, which processes of one machine share.
    since: float
    #: That of its message.
    number: int
    #: In seconds; 0: none.
    soft: float
    hard: float


def begin_limited(slot: int, task: Limited) -> None:
    """Note that a shift begins a task with a limit."""
    at = slot * _EACH
    _LIMITS.pack_into(_limited, at + _SECONDS.size, task.number, task.soft, task.hard)
    # Last: whoever reads this reads the rest as well.
    _SECONDS.pack_into(_limited, at, task.since)


def end_limited(slot: int) -> None:
    """Note that it has ended."""
    _SECONDS.pack_into(_limited, slot * _EACH, 0.0)


def limited(slot: int) -> Limited | None:
    """Return the task with a limit that a shift runs; None if it runs none."""
    at = slot * _EACH
    (since,) = _SECONDS.unpack_from(_limited, at)
    number, soft, hard = _LIMITS.unpack_from(_limited, at + _SECONDS.size)
    (again,) = _SECONDS.unpack_from(_limited, at)
    return Limited(since, number, soft, hard) if since and since == again else None


def means(slot: int, since: float) -> None:
    """Note for which task the signal is that follows, by its begin.  For the main process."""
    _SECONDS.pack_into(_limited, (slot + 1) * _EACH - _SECONDS.size, since)


def meant(slot: int) -> float:
    """Return for which task the main process has sent a signal, and forget it; 0: it sent none."""
    at = (slot + 1) * _EACH - _SECONDS.size
    (since,) = _SECONDS.unpack_from(_limited, at)
    _SECONDS.pack_into(_limited, at, 0.0)
    return float(since)


def clear_slot(slot: int) -> None:
    """Forget all of a slot, for another shift."""
    come_to(slot, 0, 0)
    end_limited(slot)
    means(slot, 0.0)
