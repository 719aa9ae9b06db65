"""Let a world of faults come from a seed, and judge it: `python -m proof.soak --help`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import redis

from proof.checker import NotALogError
from proof.soak.live import STRAYED, Lived, live
from proof.soak.oracle import unexplained
from proof.soak.plan import CLOCKS, World, worlds
from proof.soak.table import FAULTS
from proof.stopping import end_at_signals, ending_all
from tests.support.faketime import faketime_library

__all__ = ["main"]

_KINDS = ("lost", "overlap", "object", "settled twice", "ran again", "attempts", "stray", STRAYED)


def main() -> int:
    """Let worlds live one after the other; 1 when anything was beyond the table."""
    given = _arguments()
    end_at_signals()
    with ending_all():
        return _run(given)


def _run(given: argparse.Namespace) -> int:
    folder = Path(given.folder or tempfile.mkdtemp(prefix="soak-"))
    planned = worlds(given.seed, given.minutes, _possible(given.faults), given.world_minutes)
    lived = []
    for world in planned:
        _tell_plan(world)
        if given.plan:
            continue
        one = _live(world, folder, given.rest)
        lived.append(one)
        _keep(one, folder / world.name)
        _tell(one)
    if given.plan:
        return 0
    _tell_all(lived, given.seed)
    return 1 if any(one.problems for one in lived) or not lived else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="what happens when (%(default)s)")
    parser.add_argument("--minutes", type=float, default=2.0, help="of faults (%(default)s)")
    parser.add_argument(
        "--faults",
        type=lambda text: text.split(","),
        default=list(FAULTS),
        help=f"these alone, with commas between them, of: {', '.join(FAULTS)}",
    )
    parser.add_argument(
        "--world-minutes", type=float, default=4.0, help="of one world, then a fresh one follows"
    )
    parser.add_argument("--rest", type=float, default=180.0, help="seconds to come to rest")
    parser.add_argument("--plan", action="store_true", help="say what would happen, and do nothing")
    parser.add_argument("--folder", help="for servers and logs (default: a temporary one)")
    given = parser.parse_args()
    if unknown := set(given.faults) - set(FAULTS):
        parser.error(f"no such faults: {', '.join(sorted(unknown))}")
    return given


def _possible(faults: list[str]) -> list[str]:
    if faketime_library() is not None or not CLOCKS.intersection(faults):
        return faults
    print(f"left out without libfaketime (Debian: libfaketime): {', '.join(sorted(CLOCKS))}")
    return [name for name in faults if name not in CLOCKS]


def _live(world: World, folder: Path, rest_seconds: float) -> Lived:
    try:
        return live(world, folder / world.name, rest_seconds)
    except (AssertionError, NotALogError, OSError, RuntimeError, redis.RedisError) as error:
        return Lived(world, [f"{type(error).__name__}: {error}"])


def _keep(one: Lived, folder: Path) -> None:
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in one.rows))
    told = [*one.happened, *one.deaths]
    (folder / "happened.txt").write_text("".join(f"{each}\n" for each in told))


def _tell_plan(world: World) -> None:
    print(f"world {world.name}, {world.set_up}: {len(world.steps)} faults")
    for step in world.steps:
        print(f"    {step}")
    sys.stdout.flush()


def _tell(one: Lived) -> None:
    for name, fault in one.allowed:
        print(f"    allowed by {name}: {fault}")
    for problem in one.problems:
        print(f"FAULT: world {one.world.name}: {problem}")
    looked = ", ".join(f"{count} {what}" for what, count in one.counts.items())
    print(
        f"world {one.world.name}: {looked}, {sum(one.refused.values())} calls refused", flush=True
    )


def _tell_all(lived: list[Lived], seed: int) -> None:
    happened = Counter(each.fault for one in lived for each in one.happened)
    allowed = Counter(name for one in lived for name, _ in one.allowed)
    print(f"{'fault':14} {'times':>5} {'allowed anomalies':>17}")
    for name in FAULTS:
        print(f"{name:14} {happened[name]:5} {allowed[name]:17}")
    counts: Counter[str] = Counter()
    for one in lived:
        counts.update(one.counts)
    refused: Counter[str] = Counter()
    for one in lived:
        refused.update(one.refused)
    kinds = Counter(kind for one in lived for kind in one.kinds)
    problems = sum(len(one.problems) for one in lived)
    anomalies = sum(allowed.values()) + problems
    rate = anomalies / max(counts["published"], 1)
    deaths = sum(len(one.deaths) for one in lived)
    without = sum(len(unexplained(one.happened, one.deaths)) for one in lived)
    print(
        f"declared dead while they lived: {deaths}, of these without a fault of theirs: {without}"
    )
    print(f"refused to the publisher: {dict(refused)}")
    print(f"seed {seed}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    print(f"anomalies: {anomalies} ({rate:.4%} of what was published), {problems} beyond the table")
    print("beyond the table: " + ", ".join(f"{kinds[kind]} {kind}" for kind in _KINDS))


if __name__ == "__main__":
    sys.exit(main())
