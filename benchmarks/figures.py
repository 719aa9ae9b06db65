"""From rows of figures to medians and ratios.  Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["AIMS", "Aim", "Row", "Table", "percentile", "percentile_99", "spread"]


@dataclass(frozen=True)
class Row:
    """The figures of one contender's turn in one round.  In round 0 is what was counted once."""

    turn: int
    contender: str
    figures: Mapping[str, float]


class Table:
    """Medians over the rounds, and ratios of figures that were measured in the same round."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._by_round: dict[str, dict[tuple[int, str], float]] = {}
        for row in rows:
            for name, value in row.figures.items():
                self._by_round.setdefault(name, {})[row.turn, row.contender] = value

    def names(self) -> list[str]:
        """Return the names of all figures, in the order in which they came."""
        return list(self._by_round)

    def values(self, name: str, contender: str) -> list[float]:
        """Return a contender's figures of this name, a round each."""
        return [value for _, value in self._of(name, contender)]

    def median(self, name: str, contender: str) -> float | None:
        """Return the median over the rounds; None for what was not measured."""
        return _median(self.values(name, contender))

    def ratio(self, name: str, contender: str, against: str) -> float | None:
        """Return the median of the rounds' ratios; None for what was not measured, and for a
        ratio to nothing.
        """
        return _median(self.ratios(name, contender, against))

    def ratios(self, name: str, contender: str, against: str) -> list[float]:
        """Return the ratio of each round in which both were measured, and the other not nothing."""
        others = dict(self._of(name, against))
        return [v / others[turn] for turn, v in self._of(name, contender) if others.get(turn)]

    def difference(self, name: str, contender: str, against: str) -> float | None:
        """Return the median of the rounds' differences; None for what was not measured."""
        others = dict(self._of(name, against))
        return _median(
            [v - others[turn] for turn, v in self._of(name, contender) if turn in others]
        )

    def _of(self, name: str, contender: str) -> Iterator[tuple[int, float]]:
        for (turn, who), value in self._by_round.get(name, {}).items():
            if who == contender:
                yield turn, value


@dataclass(frozen=True)
class Aim:
    """What the package wants of one figure.  A benchmark reports it; nothing fails because of it.

    *kind* is "ratio" or "difference", to what *against* has in the same round, or "value".
    """

    name: str
    contender: str
    at_least: float | None = None
    at_most: float | None = None
    kind: str = "ratio"
    against: str = "stock-late"

    def found(self, table: Table) -> float | None:
        """Return what was measured, if it was."""
        if self.kind == "value":
            return table.median(self.name, self.contender)
        compare = table.ratio if self.kind == "ratio" else table.difference
        return compare(self.name, self.contender, self.against)

    def is_met(self, found: float) -> bool:
        """Whether this will do."""
        return (self.at_least is None or found >= self.at_least) and (
            self.at_most is None or found <= self.at_most
        )


AIMS = (
    Aim("drain_per_second", "reliable", at_least=2.0),
    Aim("main_cpu_us", "reliable", at_most=0.3),
    Aim("enqueue_per_second", "reliable", at_least=1.1),
    Aim("enqueue_per_second", "reliable-object", at_least=1.0),
    Aim("enqueue_per_second", "reliable-object", at_least=1.15, against="singleton"),
    Aim("life_trips", "reliable", at_most=0.5),
    Aim("life_redis_us", "reliable", at_most=0.8),
    Aim("idle_p50_ms", "reliable", at_most=1.1),
    Aim("idle_p99_ms", "reliable", at_most=1.1),
    Aim("idle_trips_per_second", "reliable", at_most=5.0, kind="difference"),
    Aim("connections", "reliable", at_most=3.0, kind="difference"),
    Aim("eta_p99_ms", "reliable", at_most=20.0, kind="value"),
    Aim("queued_1000_bytes", "reliable", at_most=2.2),
    Aim("settled_1000_bytes", "reliable", at_most=0.0, kind="value"),
    Aim("main_rss_mb", "reliable", at_most=8.0, kind="difference"),
    Aim("child_rss_mb", "reliable", at_most=8.0, kind="difference"),
)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return what so many of 100 do not exceed; between two values, a part of the way."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def percentile_99(values: Sequence[float]) -> float:
    """Return what 99 of 100 do not exceed; between two values, a part of the way."""
    return percentile(values, 99)


def spread(values: Sequence[float]) -> str:
    """Return the median, with the least and the greatest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
