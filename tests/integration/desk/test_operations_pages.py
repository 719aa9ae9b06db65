"""`docs/operations*.rst`: each command and block is run, and each table is what is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from types import ModuleType

import pytest

from celery_reliable.findings import RUNNING
from celery_reliable.operations import Desk, Filter, Wait
from tests.integration.commands import invoke
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.processes import REPOSITORY

PAGES = (
    "operations.rst",
    "operations-status.rst",
    "operations-letters.rst",
    "operations-live.rst",
)
INDEX, STATUS, LETTERS, LIVE = ((REPOSITORY / "docs" / name).read_text("utf-8") for name in PAGES)
COMMANDS = re.findall(r"^    celery -A proj reliable (.+)$", STATUS + LETTERS + LIVE, re.MULTILINE)
#: They go on until they are ended: by tests of their own.
ENDLESS = {"status --watch", "metrics --port 9809"}


def block(page: str) -> str:
    (found,) = re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", page)
    return re.sub(r"^    ", "", found, flags=re.MULTILINE)


def rows(section: str) -> set[str]:
    """What the first column of the tables of a section names."""
    text = re.split(rf"\n{section}\n-+\n", STATUS)[1]
    text = re.split(r"\n-{4,}\n", text)[0]
    return set(re.findall(r"^``(\w+)`` {2,}", text, re.MULTILINE))


def test_every_command_runs(project: Project, desk: Desk) -> None:
    project.start_worker("one")
    project.effects.run_of(project.send("gate", "door").id)
    desk.ledger.happenings.note("task_lost", {"name": "billing.charge", "attempt": 1})
    assert set(COMMANDS) > ENDLESS
    for number, command in enumerate(COMMANDS):
        if command in ENDLESS:
            continue
        for letter in range(3):
            put(project, f"letter-{number}-{letter}")
        live = project.send("work", 0, countdown=3600).id
        known = {"ID": live if "revoke" in command else f"letter-{number}-0"}
        known["GROUP"] = desk.letter_groups.all().groups[0].group
        arguments = [known.get(word, word) for word in shlex.split(command)]

        ran = invoke(project.app, *arguments)

        assert ran.exit_code == 0, (command, ran.output, ran.exception)
        assert ran.output.strip(), command
        if "replay --group" in command:
            assert desk.letters.count() == 0 or "--dry-run" in command
    project.effects.open_gate("door")


def test_every_block_runs(
    project: Project,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = ModuleType("proj.celery")
    module.app = project.app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "proj", ModuleType("proj"))
    monkeypatch.setitem(sys.modules, "proj.celery", module)
    put(project, "one")
    desk.ledger.happenings.note("task_lost", {"name": "billing.charge", "attempt": 1})

    for page, said in (
        (INDEX, "knows no task '4711'"),
        (LETTERS, "1 project.work"),
        (LIVE, "['attempt 1']\n"),
    ):
        exec(compile(block(page), "page", "exec"), {})
        assert said in capsys.readouterr().out
    # It connects receivers for as long as its process lives.
    subprocess.run([sys.executable, "-c", block(STATUS)], cwd=REPOSITORY, check=True, timeout=60)


def test_every_finding_every_kind_of_waiting_and_every_part_of_a_filter_is_told_of() -> None:
    told = set(re.findall(r"^([EW]\d{3}) +``(\w+)`` ", STATUS, re.MULTILINE))
    assert told == {(one.code, one.name) for one in RUNNING} | {("E005", "redis_evicts")}
    assert rows("Tasks") - {"kind"} == {kind.value for kind in Wait}
    parts = set(re.findall(r"^``--([\w-]+)`` ", LETTERS, re.MULTILINE)) - {"group"}
    names = {one.name.removesuffix("_seconds").replace("_", "-") for one in fields(Filter)}
    assert parts == names
