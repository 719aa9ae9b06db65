"""Cut commands, and say what came of it: `python -m proof.cuts --help`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from proof.cuts.choosing import Counted, is_wait, points_of, shuffled
from proof.cuts.play import Outcome, Stage
from proof.cuts.points import Point
from proof.cuts.proxy import ScriptNames
from proof.cuts.scenarios import IDLE, SCENARIOS
from proof.stopping import end_at_signals
from tests.support.progress import Progress

T = TypeVar("T")
R = TypeVar("R")

#: What is sent depends a little on when threads get their turn.
_MOST_TRIES = 3
#: What is sent when a connection is new, or a queue.
_FIRST = frozenset(("CLIENT", "EXEC", "HELLO", "LLEN", "MULTI", "PING", "SADD", "SELECT"))
_WORDS = ("held", "not reached", "FAULT")


@dataclass(frozen=True)
class Cut:
    """What came of a point, as it is kept and told."""

    point: Point
    word: str
    problems: list[str]


class Run:
    """Plays on several stages side by side."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        self.is_broken_off = False
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
        pool = ThreadPoolExecutor(len(self._stages))
        try:
            return list(pool.map(do, what))
        except BaseException:
            # Who is told to end does not play the rest first.
            self.is_broken_off = True
            for stage in self._stages:
                stage.is_broken_off = True
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def play(self, scenario: str, point: Point | None = None) -> Outcome:
        """Play it on a stage that is free, again if it did not come to the point."""
        stage = self._free.get()
        try:
            for number in range(_MOST_TRIES):
                fresh = point is None or number > 0 or point.command in _FIRST
                outcome = stage.play(SCENARIOS.get(scenario, IDLE), point, fresh=fresh)
                if outcome.word != "not reached":
                    break
            if outcome.problems and not self.is_broken_off:
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
            known = {key: n for key, n in idle.counts.items() if not is_wait(key[1])}
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
    end_at_signals()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="cuts-"))
    progress = Progress(given.progress)
    known = [Cut(Point.parse(text), *rest) for text, *rest in progress.rows if rest]
    run = Run(folder, given.jobs)
    try:
        points = [Point.parse(text) for text in given.point or ()]
        points = points or _points(run, progress, given)
        wanted = set(points)
        cuts = [one for one in known if one.point in wanted]
        wanted -= {one.point for one in cuts}
        cuts += _cut_all(run, [one for one in points if one in wanted], given, progress)
    finally:
        run.close()
    _tell(cuts, given, len(points))
    faults = [one for one in cuts if one.problems]
    if faults:
        print(f"logs: {folder / 'faults'}")
    return 1 if faults or not cuts else 0


def _points(run: Run, progress: Progress, given: argparse.Namespace) -> list[Point]:
    """All points, in the order of the seed: those that are kept, as the next run finds others."""
    kept = [Point.parse(text) for text, *rest in progress.rows if not rest]
    if not kept:
        kept = run.learn(list(SCENARIOS) if given.progress else given.scenario or list(SCENARIOS))
        for point in kept:
            progress.add([str(point)])
    points = [one for one in kept if not given.scenario or one.scenario in given.scenario]
    _tell_points(points)
    return shuffled(points, given.seed)


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
    parser.add_argument(
        "--progress", type=Path, metavar="FILE", help="keep all there; another run goes on"
    )
    parser.add_argument("--folder", help="for servers and logs (default: a temporary one)")
    parser.add_argument("--verbose", action="store_true", help="tell each point")
    return parser.parse_args()


def _cut_all(
    run: Run, points: list[Point], given: argparse.Namespace, progress: Progress
) -> list[Cut]:
    until = time.monotonic() + given.share if given.share else float("inf")

    def cut(point: Point) -> Cut | None:
        if time.monotonic() > until:
            return None
        outcome = run.play(point.scenario, point)
        if run.is_broken_off:
            return None
        if given.verbose or outcome.problems:
            print(f"{outcome.word} {point} {outcome.seconds:.1f} s", flush=True)
            for problem in outcome.problems:
                print(f"    {problem}", flush=True)
        progress.add([str(point), outcome.word, outcome.problems])
        return Cut(point, outcome.word, outcome.problems)

    return [one for one in run.together(cut, points) if one is not None]


def _tell_points(points: list[Point]) -> None:
    counts = Counter((point.scenario, point.role) for point in points)
    for (scenario, role), count in counts.items():
        print(f"{scenario}, {role}: {count} points")
    print(f"{len(points)} points in all", flush=True)


def _tell(cuts: list[Cut], given: argparse.Namespace, known: int) -> None:
    table = Counter(
        (one.point.scenario, one.point.role, f"{one.point.time}, {one.point.effect}", one.word)
        for one in cuts
    )
    for (scenario, role, kind, word), count in sorted(table.items()):
        print(f"{scenario:20} {role:10} {kind:14} {word:12} {count:4}")
    for one in cuts:
        if one.word == "not reached":
            print(f"not reached: {one.point}")
        for problem in one.problems:
            print(f"FAULT: {one.point}: {problem}")
            print(f"    again: python -m proof.cuts --point '{one.point}'")
    words = Counter(one.word for one in cuts)
    told = ", ".join(f"{words[word]} {word}" for word in _WORDS)
    print(f"seed {given.seed}: {len(cuts)} of {known} points cut: {told}")


if __name__ == "__main__":
    sys.exit(main())
