"""The figures as pictures, for pages.  Needs matplotlib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot

from benchmarks.contenders import BASELINE, CONTENDERS
from benchmarks.figures import Row, Table
from benchmarks.loads import Load

__all__ = ["draw", "draw_loads"]

_STATES = ("queued", "running", "waiting", "settled", "result")

#: File, title, unit, and the figures that stand side by side.
_BARS = (
    (
        "rates",
        "Tasks per second",
        "",
        ("enqueue_per_second", "group_per_second", "threads_per_second", "drain_per_second"),
    ),
    (
        "cpu",
        "CPU of a task",
        "µs",
        ("enqueue_cpu_us", "main_cpu_us", "children_cpu_us", "life_redis_us"),
    ),
    (
        "latency",
        "From the call to the start of the task",
        "ms",
        ("idle_p50_ms", "idle_p99_ms", "load_p50_ms", "load_p99_ms"),
    ),
    ("trips", "Round trips of a task", "", ("enqueue_trips", "drain_trips")),
)


def draw(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Write a picture a subject into *folder*, as SVG, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    table = Table(rows)
    names = [name for name in CONTENDERS if any(row.contender == name for row in rows)]
    bars = [*_BARS, *(_bytes(size) for size in _sizes(table))]
    return [_bars(folder / f"{bar[0]}.svg", table, names, *bar[1:]) for bar in bars]


def draw_loads(
    folder: Path, rows: Sequence[Row], loads: Sequence[Load], names: Sequence[str]
) -> Path | None:
    """Write a picture of how much faster than stock Celery each load is worked off into *folder*,
    as SVG, and return the file.  None where there is nothing to compare: only one contender, or no
    load that is worked off.
    """
    table = Table(rows)
    figures = [f"{load.name}_drain_per_second" for load in loads]
    drained = [f for f in figures if table.values(f, BASELINE)]
    others = [name for name in names if name != BASELINE]
    if not drained or not others:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    width = 0.8 / len(others)
    picture, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for at, name in enumerate(others):
        left = [group + at * width for group in range(len(drained))]
        axes.bar(left, [table.ratio(f, name, BASELINE) or 0.0 for f in drained], width, label=name)
        for x, figure in zip(left, drained, strict=True):
            ratios = table.ratios(figure, name, BASELINE)
            axes.plot([x] * len(ratios), ratios, ".", color="black", markersize=3)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    labels = [figure.partition("_")[0] for figure in drained]
    title = f"Tasks worked off in a second, beside {BASELINE} (1.0)"
    _dress(axes, title, "ratio", labels, middle=0.4 - width / 2)
    path = folder / "loads.svg"
    picture.savefig(path)
    pyplot.close(picture)
    return path


def _sizes(table: Table) -> list[int]:
    found = (re.fullmatch(r"queued_(\d+)_bytes", name) for name in table.names())
    return [int(match[1]) for match in found if match]


def _bytes(size: int) -> tuple[str, str, str, tuple[str, ...]]:
    figures = tuple(f"{state}_{size}_bytes" for state in _STATES)
    return (
        f"bytes-{size}",
        f"Redis memory of a task with a body of {size:,} bytes",
        "bytes",
        figures,
    )


def _bars(
    path: Path, table: Table, names: Sequence[str], title: str, unit: str, figures: Sequence[str]
) -> Path:
    """Draw a group of bars a figure, with the median's height and a dot for each round."""
    picture, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    width = 0.8 / len(names)
    for at, name in enumerate(names):
        left = [group + at * width for group in range(len(figures))]
        axes.bar(left, [table.median(f, name) or 0.0 for f in figures], width, label=name)
        for x, figure in zip(left, figures, strict=True):
            values = table.values(figure, name)
            axes.plot([x] * len(values), values, ".", color="black", markersize=3)
    _dress(axes, title, unit, figures, middle=0.4 - width / 2)
    picture.savefig(path)
    pyplot.close(picture)
    return path


def _dress(axes: Any, title: str, unit: str, figures: Sequence[str], *, middle: float) -> None:
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_xticks([n + middle for n in range(len(figures))], figures)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize="small")
