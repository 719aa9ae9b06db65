"""What the main process and its children tell each other through memory that they share: the main
process that all shifts are called off, each shift how far it has come.
"""

from __future__ import annotations

import mmap
import struct

__all__ = ["N_SLOTS", "call_off_shifts", "come_to", "how_far", "shifts_called_off"]

_NUMBER = struct.Struct("=Q")
_RANGE = struct.Struct("=QQ")
#: So many shifts may run at once; a pool of more processes has no more of them.
N_SLOTS = 1024
# Anonymous and shared: made before the children are forked.
_memory = mmap.mmap(-1, _NUMBER.size + N_SLOTS * _RANGE.size)


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
