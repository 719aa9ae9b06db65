"""The same faults, done to this package, to stock Celery and to other systems, each as its own
documentation makes it reliable.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.arena.cost import measure
from benchmarks.arena.faults import FAULTS, Fault
from benchmarks.arena.report import print_report, rst, settings_rst, write_json
from benchmarks.arena.servers import why_no_postgres
from benchmarks.arena.stage import NotReady, Stage
from benchmarks.arena.systems import OURS, STOCK, SYSTEMS, System

#: The least that shows that it works.
QUICK = {"faults": ["worker"], "only": [OURS, STOCK], "rounds": 1, "tasks": 100}


def main() -> None:
    """Try all that is chosen, and report."""
    options = _options()
    chosen = [SYSTEMS[name] for name in options.only]
    absent = {one.name: why for one in chosen if (why := _why_not(one))}
    systems = [one for one in chosen if one.name not in absent]
    work = Path(tempfile.mkdtemp(prefix="arena-"))
    try:
        content = {
            "about": {
                "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "platform": platform.platform(),
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "bound_seconds": options.bound,
                "stages_at_a_time": options.jobs,
                "load_before": round(os.getloadavg()[0], 1),
            },
            "systems": {
                one.name: {
                    "version": one.version(),
                    "settings": one.settings,
                    "redelivery_seconds": one.redelivery_seconds,
                }
                for one in systems
            },
            "not_tried": absent,
            "faults": _faults(systems, [FAULTS[name] for name in options.faults], options, work),
            "cost": _cost(systems, options, work),
        }
        content["about"]["load_after"] = round(os.getloadavg()[0], 1)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print_report(content)
    if options.json:
        write_json(options.json, content)
    if options.rst:
        options.rst.write_text(rst(content) + "\n" + settings_rst(content), encoding="utf-8")


def _faults(
    systems: Sequence[System], faults: Sequence[Fault], options: argparse.Namespace, work: Path
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {fault.name: {} for fault in faults}

    def play(fault: Fault, system: System) -> None:
        told = _on_stage(system, work, options.bound, lambda stage: asdict(fault.play(stage)))
        found[fault.name][system.name] = told
        print(f"{fault.name}: {system.name}: {told}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        for one in [pool.submit(play, fault, system) for fault in faults for system in systems]:
            one.result()
    return found


def _cost(
    systems: Sequence[System], options: argparse.Namespace, work: Path
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in systems}
    for turn in range(options.rounds):
        for system in systems:
            load = os.getloadavg()[0]
            told = _on_stage(
                system, work, options.bound, lambda stage: asdict(measure(stage, options.tasks))
            )
            found[system.name].append({**told, "load_average": round(load, 1)})
            print(f"cost, round {turn + 1}: {system.name}: {told}", flush=True)
    return found


def _on_stage(
    system: System, work: Path, bound: float, play: Callable[[Stage], dict[str, Any]]
) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(dir=work))
    try:
        with Stage(system, folder, bound).open() as stage:
            return play(stage)
    except NotReady as error:
        return {"error": str(error)}


def _why_not(system: System) -> str | None:
    if system.version() is None:
        return f"{', '.join(system.packages)}: not installed"
    return why_no_postgres() if system.server == "postgres" else None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.arena", description=" ".join((__doc__ or "").split())
    )
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, metavar="SYSTEM", help="these")
    parser.add_argument("--faults", nargs="*", choices=FAULTS, metavar="FAULT", help="these")
    parser.add_argument("--bound", type=float, default=45.0, help="seconds that one waits (45)")
    parser.add_argument("--jobs", type=int, default=2, help="stages at a time (2)")
    parser.add_argument("--rounds", type=int, help="turns of the cost (3); 0: no cost")
    parser.add_argument("--tasks", type=int, help="tasks of a turn (2000)")
    parser.add_argument("--quick", action="store_true", help="the least that shows that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it there")
    parser.add_argument(
        "--rst", type=Path, metavar="FILE", help="write the table of the docs there"
    )
    options = parser.parse_args()
    rest = {"faults": list(FAULTS), "only": list(SYSTEMS), "rounds": 3, "tasks": 2000}
    for name, value in (QUICK if options.quick else rest).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


if __name__ == "__main__":
    main()
