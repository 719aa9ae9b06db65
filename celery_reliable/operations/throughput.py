"""How fast attempts are processed, how many fail and are lost, and whether that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from celery_reliable.ledger import Ledger
from celery_reliable.operations import shapes
from celery_reliable.operations.times import iso

__all__ = ["RATES", "Throughput", "look_at_throughput"]

RATES: tuple[Literal["processed", "failed", "lost"], ...] = ("processed", "failed", "lost")

_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60
_WINDOWS = (10, 60, _DAY_MINUTES)


@dataclass(frozen=True)
class Throughput:
    """What was counted in the last day, by the minute.

    Workers count with their heartbeats what their pools process.  Of a worker that is killed, what
    it did since its last beat is missing.

    Attributes:
        now_ms: the server's time.
        counted: for each minute how many attempts of reliable tasks were "processed" (they ended,
            in whatever state), "failed" (in FAILURE) and "lost"; the one that runs is the last.
    """

    now_ms: int = 0
    counted: Sequence[Mapping[str, int]] = ()

    def slices(self, minutes: int, count: int) -> list[shapes.Throughput]:
        """Return how many a minute there were in the last *count* times of so many minutes each,
        the latest first.
        """
        begun_ms = self.now_ms - self.now_ms % _MINUTE_MS
        found: list[shapes.Throughput] = []
        for at in range(count):
            until = len(self.counted) - at * minutes
            within = self.counted[max(0, until - minutes) : max(0, until)]
            # The minute that runs is not over.
            lasted = minutes if at else minutes - 1 + self.now_ms % _MINUTE_MS / _MINUTE_MS
            # One in a day is not nothing.
            rates = {
                name: round(sum(one.get(name, 0) for one in within) / lasted, 4) for name in RATES
            }
            found.append(
                {
                    "since": iso(begun_ms - ((at + 1) * minutes - 1) * _MINUTE_MS),
                    "minutes": minutes,
                    "processed": rates["processed"],
                    "failed": rates["failed"],
                    "lost": rates["lost"],
                }
            )
        return found

    def as_list(self) -> list[shapes.Throughput]:
        """The last ten minutes, the last hour and the last day, as plain JSON values."""
        return [self.slices(minutes, 1)[0] for minutes in _WINDOWS]


def look_at_throughput(ledger: Ledger) -> Throughput:
    """Look at the last day in one round trip.  Raises what the ledger raises."""
    return Throughput(*ledger.happenings.minutes(_DAY_MINUTES))
