"""Bars by the hour, as numbers that a template draws: no script, no style, no other address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.operations import Hour

__all__ = ["charts_of"]

_SLOT, _BAR, _HEIGHT = 20, 16, 90


@dataclass(frozen=True)
class _Series:
    name: str
    #: Of the style sheet.
    css: str
    values: Sequence[int]


def charts_of(hours: Sequence[Hour]) -> list[dict[str, Any]]:
    """Return the charts of a day: what ended, was lost, recovered and dead-lettered."""
    ended = [sum(one.ended.values()) - one.failed for one in hours]
    lost = [sum(one.lost.values()) for one in hours]
    buried = [sum(one.buried.values()) for one in hours]
    return [
        _chart(
            "ended",
            "Attempts that ended",
            hours,
            _Series("ended", "well", ended),
            _Series("failed", "ill", [one.failed for one in hours]),
        ),
        _chart("lost", "Attempts that were lost", hours, _Series("lost", "ill", lost)),
        _chart(
            "recovered",
            "Recovered after a loss",
            hours,
            _Series("recovered", "well", [one.recovered for one in hours]),
        ),
        _chart("buried", "Dead-lettered", hours, _Series("dead-lettered", "ill", buried)),
    ]


def _chart(name: str, title: str, hours: Sequence[Hour], *series: _Series) -> dict[str, Any]:
    """Return a chart.  What goes into attributes is text: languages write numbers otherwise."""
    views = [one.as_dict() for one in hours]
    starts = [str(view["start"])[11:16] for view in views]
    sums = [sum(values) for values in zip(*(one.values for one in series), strict=True)]
    top = max(sums, default=0)
    bars = []
    below = [0] * len(sums)
    for one in series:
        for slot, value in enumerate(one.values):
            height = _height(below[slot] + value, top) - _height(below[slot], top)
            below[slot] += value
            if value:
                bars.append(
                    {
                        "x": str(slot * _SLOT + (_SLOT - _BAR) // 2),
                        "y": str(_HEIGHT - _height(below[slot], top)),
                        "height": str(height),
                        "css": one.css,
                        "title": f"{starts[slot]}: {value} {one.name}",
                    }
                )
    return {
        "name": name,
        "title": title,
        "totals": ", ".join(f"{sum(one.values)} {one.name}" for one in series),
        "top": top,
        "bars": bars,
        "bar": str(_BAR),
        "width": str(len(sums) * _SLOT),
        "base": str(_HEIGHT),
        "middle": str(len(sums) * _SLOT // 2),
        "below": str(_HEIGHT + 14),
        "height": str(_HEIGHT + 18),
        "first": starts[0] if starts else "",
        "half": starts[len(starts) // 2] if starts else "",
        "last": starts[-1] if starts else "",
        "heads": [one.name for one in series],
        "rows": [
            {"start": view["start"], "values": [one.values[at] for one in series]}
            for at, view in enumerate(views)
            if sums[at]
        ],
    }


def _height(value: int, top: int) -> int:
    """Return the height of a bar; what is there can be seen."""
    return max(1, round(value * _HEIGHT / top)) if value and top else 0
