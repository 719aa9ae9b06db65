"""How much of a long act is done, and how fast."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Bounds", "Pace"]

#: Who is later than this begins anew, rather than to make up for it all at once.
_MOST_BEHIND_SECONDS = 1.0
#: A rate is kept to from one act to the next that goes on with it, unless it is slower than this.
_LONGEST_REST_SECONDS = 5.0


@dataclass(frozen=True)
class Bounds:
    """How much of it, and how fast."""

    rate: float | None
    most: int | None
    #: By `time.monotonic`.
    deadline: float | None

    @classmethod
    def of(cls, rate: float | None, limit: int | None, seconds: float | None) -> Bounds:
        """Reckon from now on."""
        return cls(rate, limit, None if seconds is None else time.monotonic() + seconds)


class Pace:
    """Lets so many pass a second, evenly, until its time is over; the first passes anyway."""

    def __init__(self, rate: float | None, deadline: float | None) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = time.monotonic()
        self._deadline = deadline
        self._has_begun = False

    def is_over(self) -> bool:
        """Whether the next could only pass when the time is over."""
        if self._deadline is None or not self._has_begun:
            return False
        return max(self._next, time.monotonic()) > self._deadline

    def wait(self) -> None:
        """Return when the next may pass."""
        self._has_begun = True
        if not self._gap:
            return
        now = time.monotonic()
        if self._next > now:
            time.sleep(self._next - now)
        elif now - self._next > _MOST_BEHIND_SECONDS:
            self._next = now
        self._next += self._gap

    def rest(self) -> None:
        """Return when the next may pass, as the first of another act, which knows no pace; at once
        when nobody would wait for so long.
        """
        left = self._next - time.monotonic() if self._gap else 0.0
        if 0 < left <= _LONGEST_REST_SECONDS:
            time.sleep(left)
