"""Says of a log of what tasks did whether anything was lost, doubled or out of order.

    python proof/checker.py LOG

It knows nothing of the package and imports nothing of it, only Python's standard library. LOG is a
file of JSON lines (`-`: standard input). Each has a `kind`, and `at`, a time of one clock in any
unit. The other fields, by kind (`worker`, `object` and `by` may be missing):

    object     object, at_most            so many runs may have this object at once (else 1)
    publish    task                       somebody is about to publish this id
    published  task                       he was told that it is published: it must not be lost
    reopened   task                       an operator had a dead letter run again
    begin      run, task, attempt, worker, object    a body begins
    alive      run                        it was seen to go on
    end        run                        it ended, in whatever way
    declared   worker                     it was declared dead: its runs count until then
    settled    task, state, by            an outcome was stored that is a final one; by whom: he may
                                          store it again
    buried     task                       it is a dead letter
    chord      body, headers              the body may begin when all headers have ended their run

A run that was killed counts until it was last seen: what is called an overlap is one. Exit code: 0,
all is well; 1, faults were found; 2, this is no such log, or it says nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

FIELDS = {
    "object": ("object", "at_most"),
    "publish": ("task",),
    "published": ("task",),
    "reopened": ("task",),
    "begin": ("run", "task", "attempt"),
    "alive": ("run",),
    "end": ("run",),
    "declared": ("worker",),
    "settled": ("task", "state"),
    "buried": ("task",),
    "chord": ("body", "headers"),
}

#: Every fault that it can find, and what it means.
FAULTS = {
    "lost": "published, and without an outcome at the end",
    "unfinished": "ran although nobody was told that it is published, and has no outcome",
    "unknown": "ran, and nobody had published it",
    "overlap": "two runs of one task at once",
    "settled twice": "two outcomes, and nobody had published or reopened it in between",
    "ran again": "a run began after the outcome",
    "object": "more runs at once than may have the object",
    "attempts": "the number of a later attempt is not greater",
    "chord early": "the body of a chord began before all of its headers had ended",
    "chord missing": "all headers were published and have succeeded, the body has no outcome",
}


class NotALogError(ValueError):
    """A line that is none of the log's."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, of whom, and the moments that show it."""

    kind: str
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.detail} ({FAULTS[self.kind]})"


@dataclass
class Run:
    """One run of a body, as far as it is proven."""

    run: str
    task: str
    attempt: int | None
    worker: str
    object: str | None
    began: float
    seen: float
    has_ended: bool = False

    def __str__(self) -> str:
        until = "" if self.has_ended else ", then no more seen"
        return f"attempt {self.attempt} on {self.worker} from {self.began} to {self.seen}{until}"


@dataclass
class Verdict:
    """All faults, and how much was looked at."""

    faults: list[Fault]
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        looked = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        found = Counter(fault.kind for fault in self.faults)
        told = ", ".join(f"{found[kind]} {kind}" for kind in FAULTS)
        return "\n".join([*map(str, self.faults), f"{looked}: {told}"])


def read(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of a log in the order of their times.  Raises NotALogError."""
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            missing = [name for name in ("at", *FIELDS[row["kind"]]) if name not in row]
            row["at"] = float(row["at"])
        except (ValueError, KeyError, TypeError) as error:
            raise NotALogError(f"line {number}: {type(error).__name__}: {error}") from error
        if missing:
            raise NotALogError(f"line {number}: {row['kind']} without {', '.join(missing)}")
        rows.append(row)
    return sorted(rows, key=lambda row: float(row["at"]))


def check(rows: list[dict[str, Any]]) -> Verdict:
    """Return all that is wrong with what these rows tell.  Raises NotALogError."""
    runs = _runs(rows)
    published = {row["task"] for row in rows if row["kind"] == "published"}
    if not published:
        raise NotALogError("nothing was published")
    faults = [
        *_lives(rows, published),
        *_overlaps(runs),
        *_objects(rows, runs),
        *_attempts(rows, runs),
        *_chords(rows, runs, published),
    ]
    counts = {
        "published": len(published),
        "runs": len(runs),
        "cut off": sum(not run.has_ended for run in runs),
        "outcomes": sum(row["kind"] == "settled" for row in rows),
    }
    return Verdict(faults, counts)


def _runs(rows: list[dict[str, Any]]) -> list[Run]:
    runs: dict[str, Run] = {}
    declared = {row["worker"]: row["at"] for row in rows if row["kind"] == "declared"}
    for row in rows:
        if row["kind"] == "begin":
            if row["run"] in runs:
                raise NotALogError(f"run {row['run']} begins twice")
            worker, at = str(row.get("worker")), row["at"]
            object_ = row.get("object")
            runs[row["run"]] = Run(row["run"], row["task"], row["attempt"], worker, object_, at, at)
        elif row["kind"] in ("alive", "end"):
            run = runs.get(row["run"])
            if run is None:
                raise NotALogError(f"run {row['run']} did not begin before it was seen")
            # Who was declared dead may go on: that is not promised against.
            run.seen = min(row["at"], max(run.began, declared.get(run.worker, row["at"])))
            run.has_ended = row["kind"] == "end"
    return list(runs.values())


def _lives(rows: list[dict[str, Any]], published: set[str]) -> Iterator[Fault]:
    """Each id: published, run, ended; in this order, and no other."""
    ended: set[str] = set()
    settled_at: dict[str, float] = {}
    settled_by: dict[str, Any] = {}
    for row in rows:
        task, at, kind = str(row.get("task")), row["at"], row["kind"]
        if kind in ("publish", "reopened"):
            ended.discard(task)
            settled_at.pop(task, None)
        elif kind == "begin" and task in settled_at:
            yield Fault("ran again", task, f"began at {at}, ended at {settled_at[task]}")
        elif kind == "settled" and task in settled_at:
            if row.get("by") is None or row["by"] != settled_by[task]:
                detail = f"{row['state']} at {at}, the first at {settled_at[task]}"
                yield Fault("settled twice", task, detail)
        elif kind == "settled":
            settled_at[task], settled_by[task] = at, row.get("by")
        ended |= {task} if kind in ("settled", "buried") else set()
    ran = {row["task"] for row in rows if row["kind"] == "begin"}
    # It may run before its publisher has heard that it is published.
    meant = {row["task"] for row in rows if row["kind"] in ("publish", "published")}
    known = published | {row["body"] for row in rows if row["kind"] == "chord"}
    for task in sorted(published - ended):
        yield Fault("lost", task, "it ran" if task in ran else "it never ran")
    for task in sorted(ran - known - ended):
        yield Fault("unfinished", task, "no outcome")
    for task in sorted(ran - known - meant):
        yield Fault("unknown", task, "it ran")


def _overlaps(runs: list[Run]) -> Iterator[Fault]:
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_task[run.task].append(run)
    for task, some in by_task.items():
        for one, other in _at_once(some):
            yield Fault("overlap", task, f"{one}; {other}")


def _at_once(runs: list[Run]) -> Iterator[tuple[Run, Run]]:
    """Pairs of which the later begins before the earlier was last seen."""
    going: list[Run] = []
    for later in sorted(runs, key=lambda run: run.began):
        going = [run for run in going if run.seen > later.began]
        for earlier in going:
            yield earlier, later
        going.append(later)


def _objects(rows: list[dict[str, Any]], runs: list[Run]) -> Iterator[Fault]:
    at_most = {row["object"]: int(row["at_most"]) for row in rows if row["kind"] == "object"}
    by_object: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.object is not None:
            by_object[run.object].append(run)
    for name, some in by_object.items():
        going: list[Run] = []
        for later in sorted(some, key=lambda run: run.began):
            going = [run for run in going if run.seen > later.began]
            going.append(later)
            if len(going) > at_most.get(name, 1):
                who = ", ".join(run.task for run in going)
                yield Fault("object", name, f"{len(going)} at {later.began}: {who}")


def _attempts(rows: list[dict[str, Any]], runs: list[Run]) -> Iterator[Fault]:
    """Numbers grow until an id is published anew."""
    again: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "publish":
            again[row["task"]].append(row["at"])
    last: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.began):
        if run.attempt is None:
            continue
        before = last.get(run.task)
        is_new_life = before and any(before.began < at <= run.began for at in again[run.task])
        if before and not is_new_life and run.attempt <= (before.attempt or 0):
            yield Fault("attempts", run.task, f"{before}; {run}")
        last[run.task] = run


def _chords(rows: list[dict[str, Any]], runs: list[Run], published: set[str]) -> Iterator[Fault]:
    succeeded = {r["task"] for r in rows if r["kind"] == "settled" and r["state"] == "SUCCESS"}
    ended = {row["task"] for row in rows if row["kind"] in ("settled", "buried")}
    done: dict[str, float] = {}
    for run in runs:
        if run.has_ended:
            done[run.task] = min(run.seen, done.get(run.task, run.seen))
    for row in rows:
        if row["kind"] != "chord":
            continue
        body, headers = row["body"], row["headers"]
        begun = min((run.began for run in runs if run.task == body), default=None)
        late = [one for one in headers if begun is not None and done.get(one, begun + 1) > begun]
        if late:
            yield Fault("chord early", body, f"began at {begun}, before {', '.join(late)}")
        # Who dies while he publishes a chord may have sent each header, and not yet their number.
        if (succeeded & published).issuperset(headers) and body not in ended:
            yield Fault("chord missing", body, f"{len(headers)} headers")


def main(arguments: list[str] | None = None) -> int:
    """Read a log, print what is wrong, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("log", metavar="LOG", help="a file of JSON lines, or - for standard input")
    given = parser.parse_args(arguments)
    try:
        file: TextIO
        with sys.stdin if given.log == "-" else open(given.log, encoding="utf-8") as file:
            verdict = check(read(file))
    except (OSError, NotALogError) as error:
        print(f"{given.log}: {error}", file=sys.stderr)
        return 2
    print(verdict)
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
