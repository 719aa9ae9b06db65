"""Cut commands, and say what came of it: `python -m proof.cuts --help`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from proof.cuts.choosing import Counted, points_of, shuffled
from proof.cuts.play import Outcome, Stage
from proof.cuts.points import Point
from proof.cuts.proxy import ScriptNames
from proof.cuts.scenarios import IDLE, SCENARIOS

T = TypeVar("T")
R = TypeVar("R")

#: What is sent depends a little on when threads get their turn.
_MOST_TRIES = 3
#: What is sent when a connection is new, or a queue.
_FIRST = frozenset(("CLIENT", "EXEC", "HELLO", "LLEN", "MULTI", "PING", "SADD", "SELECT"))
_WORDS = ("held", "not reached", "FAULT")


class Run:
    """Plays on several stages side by side."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        names = ScriptNames()
        self._stages = [Stage(folder / f"stage{number}", names) for number in range(jobs)]
        self._free: SimpleQueue[Stage] = SimpleQueue()
        for stage in self._stages:
            self._free.put(stage)

    def close(self) -> None:
        """End all servers."""
        for stage in self._stages:
            stage.close()

    def together(self, do: Callable[[T], R], what: Iterable[T]) -> list[R]:
        """Do it to each, as many at once as there are stages."""
        with ThreadPoolExecutor(len(self._stages)) as pool:
            return list(pool.map(do, what))

    def play(self, scenario: str, point: Point | None = None) -> Outcome:
        """Play it on a stage that is free, again if it did not come to the point."""
        stage = self._free.get()
        try:
            for number in range(_MOST_TRIES):
                fresh = point is None or number > 0 or point.command in _FIRST
                outcome = stage.play(SCENARIOS.get(scenario, IDLE), point, fresh=fresh)
                if outcome.word != "not reached":
                    break
            if outcome.problems:
                self._keep(stage, outcome)
            return outcome
        finally:
            self._free.put(stage)

    def learn(self, scenarios: list[str]) -> list[Point]:
        """Play them without a cut, and return all points at which they can be cut.

        Raises AssertionError when one does not come to a good end by itself.
        """
        (idle,) = self.together(self._counted, [IDLE.name])
        counted = self.together(self._counted, scenarios)
        found = []
        for name, one in zip(scenarios, counted, strict=True):
            # An idle worker is cut in one of the scenarios only.
            known = {key: n for key, n in idle.counts.items() if key[1] != "BRPOP"}
            if name != next(iter(SCENARIOS)):
                one = Counted(
                    {k: n for k, n in one.counts.items() if k not in known}, one.under_way
                )
            found += points_of(name, one, known)
        return found

    def _counted(self, scenario: str) -> Counted:
        outcome = self.play(scenario)
        assert not outcome.problems, f"{scenario} without a cut: {outcome.problems}"
        return Counted(outcome.counts, outcome.under_way)

    def _keep(self, stage: Stage, outcome: Outcome) -> None:
        folder = self.folder / "faults" / str(outcome.point).replace("/", "_")
        folder.mkdir(parents=True, exist_ok=True)
        rows = sorted(outcome.rows, key=lambda row: float(row["at"]))
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for path in (stage.folder / "logs").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())


def main() -> int:
    """Cut what is asked for; 1 when anything was wrong."""
    given = _arguments()
    # A runner's limit, or `timeout`, would leave all processes behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(given.folder or tempfile.mkdtemp(prefix="cuts-"))
    run = Run(folder, given.jobs)
    try:
        if given.point:
            points = [Point.parse(text) for text in given.point]
        else:
            points = run.learn(given.scenario or list(SCENARIOS))
            _tell_points(points)
            points = shuffled(points, given.seed)
        outcomes = _cut_all(run, points, given)
    finally:
        run.close()
    _tell(outcomes, given, len(points))
    faults = [one for one in outcomes if one.problems]
    if faults:
        print(f"logs: {folder / 'faults'}")
    return 1 if faults or not outcomes else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.cuts", description=__doc__)
    how_much = parser.add_mutually_exclusive_group(required=True)
    how_much.add_argument("--all", action="store_true", help="every point")
    how_much.add_argument(
        "--share", type=float, metavar="SECONDS", help="points of the seed's choice, for so long"
    )
    how_much.add_argument("--point", nargs="+", help="these, as they were printed")
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    parser.add_argument("--seed", default=today, help="in which order (default: %(default)s)")
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, help="these alone")
    parser.add_argument("--jobs", type=int, default=4, help="so many side by side")
    parser.add_argument("--folder", help="for servers and logs (default: a temporary one)")
    parser.add_argument("--verbose", action="store_true", help="tell each point")
    return parser.parse_args()


def _cut_all(run: Run, points: list[Point], given: argparse.Namespace) -> list[Outcome]:
    until = time.monotonic() + given.share if given.share else float("inf")

    def cut(point: Point) -> Outcome | None:
        if time.monotonic() > until:
            return None
        outcome = run.play(point.scenario, point)
        if given.verbose or outcome.problems:
            print(f"{outcome.word} {point} {outcome.seconds:.1f} s", flush=True)
            for problem in outcome.problems:
                print(f"    {problem}", flush=True)
        return outcome

    return [one for one in run.together(cut, points) if one is not None]


def _tell_points(points: list[Point]) -> None:
    counts = Counter((point.scenario, point.role) for point in points)
    for (scenario, role), count in counts.items():
        print(f"{scenario}, {role}: {count} points")
    print(f"{len(points)} points in all", flush=True)


def _tell(outcomes: list[Outcome], given: argparse.Namespace, known: int) -> None:
    cut = [one.point for one in outcomes if one.point is not None]
    table: Counter[tuple[str, ...]] = Counter()
    for one in outcomes:
        if one.point is not None:
            table[one.point.scenario, one.point.role, f"{one.point.time}, {one.point.effect}",
                  one.word] += 1  # fmt: skip
    for (scenario, role, kind, word), count in sorted(table.items()):
        print(f"{scenario:20} {role:10} {kind:14} {word:12} {count:4}")
    for one in outcomes:
        if one.word == "not reached":
            print(f"not reached: {one.point}")
        for problem in one.problems:
            print(f"FAULT: {one.point}: {problem}")
            print(f"    again: python -m proof.cuts --point '{one.point}'")
    words = Counter(one.word for one in outcomes)
    told = ", ".join(f"{words[word]} {word}" for word in _WORDS)
    print(f"seed {given.seed}: {len(cut)} of {known} points cut: {told}")


if __name__ == "__main__":
    sys.exit(main())
