"""What is told of a run: a table for people, the same for the docs, and all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.arena.faults import FAULTS
from benchmarks.arena.systems import STOCK, SYSTEMS

__all__ = ["cells", "print_report", "rst", "settings_rst", "write_json"]

_RATE = "drained_per_second"
_CPU = {
    "worker_cpu_ms": "the worker's CPU for a task, in milliseconds",
    "server_cpu_ms": "the server's CPU for a task, in milliseconds",
}


def cells(content: Mapping[str, Any]) -> list[list[str]]:
    """The table: a row of names, then one for each fault, then those of the cost."""
    names = [name for name in SYSTEMS if name in content["systems"]]
    rows = [["", *names]]
    for fault in FAULTS.values():
        found = content["faults"].get(fault.name, {})
        if found:
            rows.append([fault.title, *(_cell(fault.name, found.get(name)) for name in names)])
    cost = content.get("cost", {})
    stock = _best(cost, STOCK, _RATE)
    if any(cost.values()):
        rates = {name: _best(cost, name, _RATE) for name in names}
        ratios = [rate / stock if rate and stock else None for rate in rates.values()]
        rows.append([f"tasks worked off in a second, beside {STOCK}", *map(_figure, ratios)])
        for figure, title in _CPU.items():
            found = [_best(cost, name, figure) for name in names]
            rows.append([title, *map(_figure, found)])
    return rows


def print_report(content: Mapping[str, Any]) -> None:
    """Print the table, and what was not tried."""
    head, *rows = cells(content)
    grid = Table(*head, box=box.SIMPLE, title="arena")
    for row in rows:
        grid.add_row(*row)
    console = Console(width=190, highlight=False)
    console.print(grid)
    about = content["about"]
    console.print(", ".join(f"{name} {told}" for name, told in about.items()))
    for name, system in content["systems"].items():
        console.print(f"{name} {system['version']}: {system['settings']}")
    for name, why in content["not_tried"].items():
        console.print(f"not tried: {name}: {why}")


def rst(content: Mapping[str, Any]) -> str:
    """The table as the docs have it: a row a fault."""
    return _list_table(cells(content))


def settings_rst(content: Mapping[str, Any]) -> str:
    """The versions and settings as the docs have them."""
    head = ["", "version", "settings"]
    systems = content["systems"].items()
    return _list_table([head, *([name, one["version"], one["settings"]] for name, one in systems)])


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write all of it."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _list_table(rows: Sequence[Sequence[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", "   :stub-columns: 1", ""]
    for row in rows:
        lines += [f"   {'*' if n == 0 else ' '} - {cell}".rstrip() for n, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def _cell(fault: str, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "not tried"
    if "error" in found:
        return "not measured"
    said = []
    if fault == "poison":
        said.append(f"{found['runs']} run{'' if found['runs'] == 1 else 's'}")
    if found["was_redelivered"] is False:
        said.append("not taken over")
    if found["not_back"]:
        said.append(f"{found['not_back']} of {found['tasks']} not back")
    elif found["seconds"] is not None:
        said.append(f"{found['seconds']:.1f} s")
    if found["went_on_seconds"] is not None:
        said.append(f"the thawed went on for {found['went_on_seconds']:.1f} s")
    elif found["at_once"]:
        said.append(f"{found['at_once']} at once")
    if found["ended_twice"]:
        said.append(f"{found['ended_twice']} ended twice")
    return ", ".join(said) or "once"


def _best(cost: Mapping[str, Any], name: str, figure: str) -> float | None:
    """The best of the rounds: what else a machine does makes a figure worse, never better."""
    turns = [turn.get(figure) for turn in cost.get(name, ())]
    known = [one for one in turns if one is not None]
    if not known:
        return None
    return float(max(known) if figure == _RATE else min(known))


def _figure(found: float | None) -> str:
    return "-" if found is None else f"{found:.2f}"
