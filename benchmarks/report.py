"""What is told of a run: tables for people, and all figures as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import redis
from rich import box
from rich.console import Console
from rich.table import Table as Grid

from benchmarks.contenders import BASELINE, CONTENDERS
from benchmarks.figures import AIMS, Row, Table

__all__ = ["environment", "print_report", "write_json"]

_PACKAGES = ("celery-reliable", "celery", "kombu", "redis", "celery-singleton", "celery-once")
#: Under what the others were measured; cores are those that other processes took.
_CONDITIONS = ("foreign_cores", "load_average", "load_per_second")
#: Wide enough for all contenders side by side, where the output is no terminal.
_WIDTH = 150


def environment(client: redis.Redis) -> dict[str, Any]:
    """Return where this is measured, and with what."""
    server = client.info("server")
    persistence = client.config_get("appendonly")
    return {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "redis_server": server["redis_version"],
        "appendonly": persistence["appendonly"],
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def print_report(about: Mapping[str, Any], rows: Sequence[Row], absent: Mapping[str, str]) -> None:
    """Print medians with their ratios, then what the package aims at."""
    table = Table(rows)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    console.print(_title(about))
    for name, why in absent.items():
        console.print(f"not measured: {name}: {why}")
    names = [name for name in CONTENDERS if any(row.contender == name for row in rows)]
    console.print(_medians(table, names))
    if any(aim.found(table) is not None for aim in AIMS):
        console.print(_aims(table))


def write_json(
    path: Path, about: Mapping[str, Any], rows: Sequence[Row], absent: Mapping[str, str]
) -> None:
    """Write each figure of each round."""
    content = {
        "environment": dict(about),
        "not_measured": dict(absent),
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _title(about: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    return (
        f"{about['at']}, {about['platform']}, {about['cpu']}, {about['cores']} cores, load "
        f"{about['load_average']:.1f}, Python {about['python']}, Redis {about['redis_server']} "
        f"(appendonly {about['appendonly']}), {packages}; rounds: {about['rounds']}, tasks: "
        f"{about['tasks']}"
    )


def _medians(table: Table, names: Sequence[str]) -> Grid:
    grid = Grid(title=f"medians (and ratios to {BASELINE})", box=box.SIMPLE)
    grid.add_column("")
    for name in names:
        grid.add_column(name, justify="right", no_wrap=True)
    for figure in table.names():
        grid.add_row(figure, *(_cell(table, figure, name) for name in names))
    return grid


def _cell(table: Table, figure: str, name: str) -> str:
    value, ratio = table.median(figure, name), table.ratio(figure, name, BASELINE)
    if value is None:
        return "-"
    if figure in _CONDITIONS:
        ratio = None
    return _number(value) + ("" if ratio is None else f" ({ratio:.2f})")


def _aims(table: Table) -> Grid:
    grid = Grid(title="what the package aims at", box=box.SIMPLE)
    for heading in ("figure", "of", "beside", "aim", "measured", ""):
        grid.add_column(heading)
    for aim in AIMS:
        found = aim.found(table)
        if found is None:
            continue
        bound = f"≥ {aim.at_least:g}" if aim.at_least is not None else f"≤ {aim.at_most:g}"
        beside = "" if aim.kind == "value" else f"{aim.against} ({aim.kind})"
        met = "met" if aim.is_met(found) else "missed"
        grid.add_row(aim.name, aim.contender, beside, bound, f"{found:.2f}", met)
    return grid


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
