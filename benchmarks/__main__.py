"""What the package costs, beside stock Celery and the lock packages, in one run.

All contenders take turns on one private Redis, round by round. The figures of one machine say
little, their ratios more; nothing fails because it is slow.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.contenders import BASELINE, CONTENDERS, Contender
from benchmarks.figures import Row
from benchmarks.idle import measure_idle
from benchmarks.loads import LOADS, print_loads, take_turns
from benchmarks.measures import FULL, SHORT, Scale, count_bytes, count_scripted, time_tasks
from benchmarks.profiles import profile
from benchmarks.report import environment, print_report, write_json
from benchmarks.rig import Rig
from tests.support.redis_server import RedisServer

#: A rewrite of the append-only file would fall into somebody's turn.
_SERVER_OPTIONS = {"auto-aof-rewrite-percentage": "0"}


#: Who works off loads, unless it is said otherwise.
_BESIDE = (BASELINE, "reliable")


def main() -> None:
    """Measure and report."""
    options = _options()
    scale = FULL if options.full else SHORT
    scale = replace(
        scale, rounds=options.rounds or scale.rounds, tasks=options.tasks or scale.tasks
    )
    usual = _BESIDE if options.loads is not None else CONTENDERS
    chosen = [CONTENDERS[name] for name in options.only or usual]
    absent = {
        one.name: f"{one.package} is not installed" for one in chosen if one.version() is None
    }
    present = [one for one in chosen if one.name not in absent]
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder), _SERVER_OPTIONS) as server,
    ):
        rig = Rig(server, Path(folder))
        if options.profile:
            for contender in present:
                print(profile(rig, contender, scale, options.profile, options.plots or Path.cwd()))
            return
        if options.loads is not None:
            _measure_loads(rig, present, options, scale)
            for name, why in absent.items():
                print(f"not measured: {name}: {why}")
            return
        about = {**environment(rig.client), "rounds": scale.rounds, "tasks": scale.tasks}
        rows = _measure(rig, present, scale)
    print_report(about, rows, absent)
    if options.json:
        write_json(options.json, about, rows, absent)
    if options.plots:
        from benchmarks.plots import draw

        draw(options.plots, rows)


def _measure(rig: Rig, contenders: Sequence[Contender], scale: Scale) -> list[Row]:
    rows = []
    for turn in range(1, scale.rounds + 1):
        for contender in contenders:
            load = os.getloadavg()[0]
            figures = time_tasks(rig, contender, scale)
            rows.append(Row(turn, contender.name, {**figures, "load_average": load}))
            print(
                f"round {turn} of {scale.rounds}: {contender.name}: "
                f"{figures['drain_per_second']:.0f} tasks/s, load {load:.1f}",
                flush=True,
            )
        for name, figures in measure_idle(contenders, scale, _SERVER_OPTIONS).items():
            rows.append(Row(turn, name, figures))
    for contender in contenders:
        counted = count_bytes(rig, contender, scale)
        if contender.package == "celery-reliable":
            counted.update(count_scripted(rig, contender, scale))
        rows.append(Row(0, contender.name, counted))
    return rows


def _measure_loads(
    rig: Rig, contenders: Sequence[Contender], options: argparse.Namespace, scale: Scale
) -> None:
    loads = [LOADS[name] for name in options.loads or LOADS]
    about = {**environment(rig.client), "rounds": scale.rounds, "tasks": scale.tasks}
    rows = take_turns(
        rig,
        loads,
        contenders,
        rounds=scale.rounds,
        tasks=scale.tasks,
        steady_seconds=scale.steady_seconds,
    )
    print_loads(rows, loads, [one.name for one in contenders])
    if options.json:
        write_json(options.json, about, rows, {})
    if options.plots:
        from benchmarks.plots import draw_loads

        path = draw_loads(options.plots, rows, loads, [one.name for one in contenders])
        print(path or "no picture: nothing to compare")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--full", action="store_true", help="the real one: a quarter of an hour")
    parser.add_argument("--rounds", type=int, help="how often each takes its turn")
    parser.add_argument("--tasks", type=int, help="how many a turn publishes and works off")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", help="these")
    parser.add_argument(
        "--loads",
        nargs="*",
        choices=LOADS,
        metavar="NAME",
        help="the loads where users live, or some of them, in place of the usual figures",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw there (needs matplotlib)")
    parser.add_argument(
        "--profile",
        choices=("main", "child"),
        help="measure nothing; have py-spy draw where a worker's process spends its time",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
