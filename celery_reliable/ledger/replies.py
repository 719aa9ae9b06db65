"""What Redis replies to reads, as Python has it."""

from __future__ import annotations

__all__ = ["ms_of", "text_of"]


def ms_of(time: tuple[int, int]) -> int:
    """Return the ms of what TIME replies: seconds and microseconds."""
    seconds, micros = time
    return int(seconds) * 1000 + int(micros) // 1000


def text_of(value: bytes) -> str:
    """Return a text that users may have given: what is no UTF-8 in it cannot be told apart."""
    return value.decode("utf-8", "replace")
