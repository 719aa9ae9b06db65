"""The demo's report: each broken promise is seen. A report that cannot fail says nothing."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tests.example.conftest import EXAMPLE

sys.path.insert(0, str(EXAMPLE))

from drill.diary import Diary, Document, Run
from drill.report import Evidence, Kill, Report, make_report

KILLED, FINE, POISON = 1, 2, 3


def document(pk: int, name: str, attempt: int, status: str = "succeeded") -> Document:
    return Document(pk, name, status, f"task-{pk}", attempt, 70.0, "easy")


def run(pk: int, document: int, attempt: int, started: float, **more: object) -> Run:
    facts = {"ended": started + 4, "outcome": "written", "worker": "beta@demo", **more}
    return Run(pk, document, f"task-{document}", attempt, pid=100 + pk, started=started, **facts)


FIRST = run(1, KILLED, 1, 10.0, ended=None, outcome="", worker="alpha@demo")
SECOND = run(2, KILLED, 2, 14.5)
CALM = run(3, FINE, 1, 10.0)
DEATHS = tuple(
    run(3 + n, POISON, n, 20.0 + n, ended=20.0 + n, outcome="killed itself") for n in (1, 2, 3, 4)
)
GOOD = Evidence(
    diary=Diary(
        documents=(
            document(KILLED, "killed.txt", 2),
            document(FINE, "fine.txt", 1),
            document(POISON, "poison.txt", 4, status="waiting"),
        ),
        runs=(FIRST, CALM, SECOND, *DEATHS),
    ),
    kills=(Kill("worker killed", 12.0, (FIRST,)),),
    poison=POISON,
    max_losses=3,
    results={"task-1": "SUCCESS", "task-2": "SUCCESS"},
    dead_letters=[{"task_id": "task-3", "reason": "lost"}],
    left_over=[],
    ended=[],
)


def report_on(*, runs: tuple[Run, ...] = GOOD.diary.runs, **changes: object) -> Report:
    diary = replace(GOOD.diary, runs=tuple(sorted(runs, key=lambda one: one.started)))
    return make_report(replace(GOOD, diary=diary, **changes), seconds=60.0)


def broken(report: Report) -> list[str]:
    return [check.name for check in report.checks if not check.ok]


def test_what_went_well_is_reported_as_well() -> None:
    report = report_on()

    assert broken(report) == []
    assert report.ok
    assert [rerun["seconds"] for rerun in report.reruns] == [2.5]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"results": {"task-1": "SUCCESS", "task-2": "FAILURE"}}, "is settled"),
        ({"runs": (*GOOD.diary.runs, run(9, FINE, 2, 15.0))}, "written once"),
        ({"runs": (FIRST, CALM, replace(SECOND, outcome="refused"), *DEATHS)}, "written once"),
        ({"runs": (FIRST, CALM, replace(SECOND, started=30.0), *DEATHS)}, "run again within"),
        ({"runs": (*GOOD.diary.runs, run(9, FINE, 2, 15.0, ended=None, outcome=""))}, "second"),
        ({"runs": (*GOOD.diary.runs, run(9, POISON, 5, 25.0))}, "the poison stops"),
        ({"dead_letters": []}, "the poison stops"),
        ({"runs": (*GOOD.diary.runs, run(9, FINE, 2, 13.0))}, "overlap"),
        ({"left_over": ["unacked"]}, "stays in Redis"),
        ({"ended": ["beat"]}, "beat and both workers"),
    ],
)
def test_a_broken_promise_is_seen(changes: dict, said: str) -> None:
    report = report_on(**changes)

    assert not report.ok
    assert any(said in name for name in broken(report)), broken(report)
