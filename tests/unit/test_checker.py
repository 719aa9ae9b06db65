"""The independent checker: it passes a clean log, and finds each fault in one that has it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proof import checker
from proof.checker import FAULTS, check, read
from tests.support.processes import run_python

CHECKER = Path(checker.__file__)

Row = dict[str, Any]


def ran(task: str, attempt: int, begin: float, end: float | None, **other: Any) -> list[Row]:
    run = {"run": f"{task}-{attempt}-{begin}"}
    rows = [{"at": begin, "kind": "begin", **run, "task": task, "attempt": attempt, **other}]
    if end is not None:
        rows.append({"at": end, "kind": "end", **run})
    return rows


def published(task: str, at: float) -> list[Row]:
    return [
        {"at": at, "kind": "publish", "task": task},
        {"at": at + 0.1, "kind": "published", "task": task},
    ]


def settled(task: str, at: float, state: str = "SUCCESS") -> list[Row]:
    return [{"at": at, "kind": "settled", "task": task, "state": state}]


def at_object(task: str, begin: float, end: float) -> list[Row]:
    rows = [*published(task, begin - 1), *ran(task, 1, begin, end, object="row")]
    return [*rows, *settled(task, end + 0.1)]


# "a" is killed in its first attempt, seen for the last time at 3, and settled by the second.
KILLED = [
    *published("a", 1),
    *ran("a", 1, 2, None, worker="one"),
    {"at": 3, "kind": "alive", "run": "a-1-2"},
    *ran("a", 2, 5, 6, worker="two"),
    *settled("a", 6.1),
]

# Two at a time have the object, and three want it.
OBJECTS = [
    {"at": 0, "kind": "object", "object": "row", "at_most": 2},
    *at_object("b", 2, 4),
    *at_object("c", 3, 5),
    *at_object("d", 4.5, 6),
]

LETTER = [
    *published("e", 1),
    *ran("e", 1, 2, 3),
    {"at": 3.1, "kind": "buried", "task": "e"},
    *settled("e", 3.2, "FAILURE"),
    {"at": 4, "kind": "reopened", "task": "e"},
    *ran("e", 2, 5, 6),
    *settled("e", 6.1),
]

# Its second life begins with attempt 1 again.
AGAIN = [
    *published("f", 1),
    *ran("f", 1, 2, 3),
    *settled("f", 3.1),
    *published("f", 4),
    *ran("f", 1, 5, 6),
    *settled("f", 6.1),
]

CHORD = [
    {"at": 1, "kind": "chord", "body": "body", "headers": ["g", "h"]},
    *published("g", 1),
    *published("h", 1),
    *ran("g", 1, 2, 3),
    *ran("h", 1, 2, 4),
    *settled("g", 3.1),
    *settled("h", 4.1),
    *ran("body", 1, 5, 6),
    *settled("body", 6.1),
]

CLEAN = [*KILLED, *OBJECTS, *LETTER, *AGAIN, *CHORD]


def without(rows: list[Row], **fields: Any) -> list[Row]:
    left = [row for row in rows if not fields.items() <= row.items()]
    assert len(left) < len(rows)
    return left


# For each fault, logs with that one alone.
CONTROLS: dict[str, list[list[Row]]] = {
    "lost": [
        [*CLEAN, *published("z", 1)],
        [*CLEAN, *published("z", 1), *ran("z", 1, 2, 3)],
        without(CLEAN, kind="settled", task="a"),
        [*CLEAN, *published("a", 7)],
        [*CLEAN, {"at": 7, "kind": "reopened", "task": "e"}],
    ],
    "unfinished": [[*CLEAN, {"at": 1, "kind": "publish", "task": "z"}, *ran("z", 1, 2, None)]],
    "unknown": [[*CLEAN, *ran("z", 1, 2, 3), *settled("z", 3.1)]],
    "overlap": [
        [*CLEAN, {"at": 5.5, "kind": "alive", "run": "a-1-2"}],
        [*CLEAN, {"at": 5.5, "kind": "end", "run": "a-1-2"}],
    ],
    "settled twice": [[*CLEAN, *settled("a", 7)], [*CLEAN, *settled("body", 6.2, "FAILURE")]],
    "ran again": [[*CLEAN, *ran("a", 3, 7, None)]],
    "object": [[*CLEAN, *at_object("z", 3.5, 3.6)], without(CLEAN, kind="object")],
    "attempts": [[*published("z", 1), *ran("z", 2, 2, 3), *ran("z", 2, 4, 5), *settled("z", 6)]],
    "chord early": [
        [{**row, "at": 4.2} if row.get("run") == "h-1-2" and row["kind"] == "end" else row
         for row in [*without(CHORD, kind="settled", task="h"), *settled("h", 7)]
         if row.get("task") != "body" and row.get("run") != "body-1-5"]
        + [*ran("body", 1, 3.5, 6), *settled("body", 6.1)],
        without(CLEAN, kind="end", run="h-1-2"),
    ],
    "chord missing": [
        [row for row in CLEAN if row.get("task") != "body" and row.get("run") != "body-1-5"]
    ],
}  # fmt: skip


def lines(rows: list[Row]) -> list[str]:
    return [json.dumps(row) + "\n" for row in rows]


def command(path: Path, text: str) -> subprocess.CompletedProcess[str]:
    path.write_text(text)
    # Alone: no package can be imported from there.
    return run_python("-I", "-S", CHECKER, path, code=None)


def test_a_clean_log_passes(tmp_path: Path) -> None:
    verdict = check(read(lines(CLEAN)))
    assert verdict.faults == []
    assert verdict.counts == {"published": 8, "runs": 12, "cut off": 1, "outcomes": 11}
    assert command(tmp_path / "log", "".join(lines(CLEAN))).returncode == 0


def test_there_is_a_control_for_each_fault() -> None:
    assert set(CONTROLS) == set(FAULTS)


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_found(tmp_path: Path, kind: str) -> None:
    for rows in CONTROLS[kind]:
        assert {fault.kind for fault in check(read(lines(rows))).faults} == {kind}
        done = command(tmp_path / "log", "".join(lines(rows)))
        assert done.returncode == 1, done
        assert done.stdout.startswith(f"{kind}: ")


def test_who_was_declared_dead_may_go_on() -> None:
    zombie = {"at": 5.5, "kind": "alive", "run": "a-1-2"}
    declared = {"at": 4, "kind": "declared", "worker": "one"}
    assert check(read(lines([*CLEAN, declared, zombie]))).faults == []


def test_who_stores_an_outcome_may_do_so_again() -> None:
    first, again, other = ({**settled("a", at)[0], "by": by} for at, by in ((7, 1), (8, 1), (8, 2)))
    rows = without(CLEAN, kind="settled", task="a")
    assert check(read(lines([*rows, first, again]))).faults == []
    (fault,) = check(read(lines([*rows, first, other]))).faults
    assert fault.kind == "settled twice"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json\n",
        '{"at": 1, "kind": "begin", "run": "1"}\n',
        '{"at": 1, "kind": "rumour", "task": "a"}\n',
        '{"at": 1, "kind": "published", "task": "a"}\n{"at": 2, "kind": "end", "run": "1"}\n',
        '{"at": 1, "kind": "publish", "task": "a"}\n',
    ],
)
def test_what_is_no_log_does_not_pass(tmp_path: Path, text: str) -> None:
    done = command(tmp_path / "log", text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
