"""A shift: a job of the pool in which a process takes messages by itself."""

from __future__ import annotations

import ctypes
import mmap
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from celery_reliable.broker import Queues

__all__ = [
    "N_SLOTS",
    "Left",
    "Limited",
    "Report",
    "Shift",
    "Slot",
    "call_off_shifts",
    "may_be_revoked",
    "note_revoked",
    "note_revoked_stamps",
    "share_memory",
    "shifts_called_off",
    "slot_of",
]


@dataclass(frozen=True)
class Shift:
    """What a process is told that takes messages by itself."""

    #: What the tags of its messages, and so the tokens of its claims, begin with.
    token: str
    #: Where in shared memory it notes how far it has come.
    slot: int
    #: The numbers of its messages are greater.
    after: int
    #: All in the order in which they are asked first.
    queues: Queues
    #: Whether a queue that has delivered comes last among those of its priority.
    takes_turns: bool
    #: It ends when more was called off than that.
    called_off: int
    #: It takes nothing after so many seconds.
    seconds: float
    #: It ends when the process has more memory; 0: no limit.
    max_memory_kb: int = 0
    #: Whether the main process wants the message of each task that begins.
    tells_messages: bool = False
    #: The names of tasks that the main process begins by itself: it limits their rate, or the user
    #: has a strategy for them.
    left_out: frozenset[str] = frozenset()
    #: The names of tasks whose ``Request`` is the user's: it sees how each of them ends.
    shown: frozenset[str] = frozenset()
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
    left: Left | None = None


#: So many shifts may run at once; a pool of more processes has no more of them.
N_SLOTS = 1024


class Limited(NamedTuple):
    """A task with a time limit that a shift runs."""

    #: By the monotonic clock, which processes of one machine share.
    since: float
    #: That of its message.
    number: int
    #: In seconds; 0: none.
    soft: float
    hard: float


class Slot(ctypes.Structure):
    """What the process of a shift and the main process tell each other, in shared memory."""

    #: The shift's messages that are not done with, by their numbers: the first and the last.
    first: int
    last: int
    #: The last that was opened.
    opened: int
    #: For which task the last signal of a soft limit is, by when that task began; 0: for none.
    meant: float
    _since: float
    _number: int
    _soft: float
    _hard: float
    _fields_ = [
        ("first", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("opened", ctypes.c_uint64),
        ("meant", ctypes.c_double),
        ("_since", ctypes.c_double),
        ("_number", ctypes.c_uint64),
        ("_soft", ctypes.c_double),
        ("_hard", ctypes.c_double),
    ]

    @property
    def limited(self) -> Limited | None:
        """The task with a limit that runs; None if none does."""
        task = Limited(self._since, self._number, self._soft, self._hard)
        return task if task.since and task.since == self._since else None

    def begin_limited(self, task: Limited) -> None:
        """Note that a task with a limit begins."""
        self._number, self._soft, self._hard = task.number, task.soft, task.hard
        # Last: whoever reads this reads the rest as well.
        self._since = task.since

    def end_limited(self) -> None:
        """Note that it has ended."""
        self._since = 0.0

    def clear(self) -> None:
        """Forget all, for another shift."""
        self.first = self.last = self.opened = 0
        self.meant = self._since = 0.0


#: So many bits say which ids may be revoked: of the 50 000 that Celery remembers at most, they
#: mistake one id in twenty for another.  The main process, which is asked then, knows better.
_N_BITS = 1 << 20


class _Memory(ctypes.Structure):
    called_off: int
    stamps_revoked: bool
    _fields_ = [
        ("called_off", ctypes.c_uint64),
        ("slots", Slot * N_SLOTS),
        ("stamps_revoked", ctypes.c_bool),
        ("revoked", ctypes.c_uint8 * (_N_BITS // 8)),
    ]


def _new_memory() -> _Memory:
    # Anonymous and shared by whatever is forked from now on.
    return _Memory.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Memory)))


_memory = _new_memory()


def share_memory() -> None:
    """Share memory with the processes that are forked from now on, and with nobody else: this one
    may have been forked, beside other workers.
    """
    global _memory
    _memory = _new_memory()


def slot_of(number: int) -> Slot:
    """Return one of the slots."""
    slot: Slot = _memory.slots[number]
    return slot


def shifts_called_off() -> int:
    """Return how often all shifts were called off."""
    return _memory.called_off


def call_off_shifts() -> None:
    """Let every shift that has begun end after the task that it runs.  For the main process."""
    _memory.called_off += 1


def note_revoked(task_ids: Iterable[str]) -> None:
    """Let the processes ask the main process before they begin one of these."""
    for task_id in task_ids:
        at = _bit_of(task_id)
        _memory.revoked[at >> 3] |= 1 << (at & 7)


def note_revoked_stamps() -> None:
    """Let the processes ask the main process before they begin what has a stamp."""
    _memory.stamps_revoked = True


def may_be_revoked(task_id: str, *, has_stamps: bool) -> bool:
    """Whether the main process may know that a task was revoked."""
    at = _bit_of(task_id)
    is_noted = _memory.revoked[at >> 3] & 1 << (at & 7)
    return bool(is_noted or (has_stamps and _memory.stamps_revoked))


def _bit_of(task_id: str) -> int:
    return zlib.crc32(task_id.encode()) % _N_BITS
