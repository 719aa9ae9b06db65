"""`docs/operations*.rst`: each command and block is run, and each table is what is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from celery_reliable.findings import RUNNING
from celery_reliable.operations import Wait
from celery_reliable.operations.cli import reliable
from tests.integration.conftest import Project
from tests.support.processes import REPOSITORY

PAGES = ("operations.rst", "operations-status.rst")
DOCS = REPOSITORY / "docs"
INDEX, STATUS = (
    (DOCS / name).read_text("utf-8") for name in ("operations.rst", "operations-status.rst")
)
#: They go on until they are ended: by tests of their own.
ENDLESS = {"reliable status --watch", "reliable metrics --port 9809"}


def commands() -> list[str]:
    return re.findall(r"^    celery -A proj (reliable .+)$", STATUS, re.MULTILINE)


def blocks(page: str) -> list[str]:
    found = re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", page)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def rows(section: str) -> set[str]:
    """What the first column of the tables of a section names."""
    text = re.split(rf"\n{section}\n-+\n", STATUS)[1]
    text = re.split(r"\n-{4,}\n", text)[0]
    return set(re.findall(r"^``(\w+)`` {2,}", text, re.MULTILINE))


def test_every_command_runs(project: Project) -> None:
    project.start_worker("one")
    project.effects.run_of(project.send("gate", "door").id)
    project.send("work", 0, countdown=3600)
    assert set(commands()) > ENDLESS

    for command in commands():
        if command in ENDLESS:
            continue
        _, *words = shlex.split(command)
        arguments = [
            project.send("work", 0, countdown=3600).id if one == "ID" else one for one in words
        ]
        calling = SimpleNamespace(app=project.app, no_color=True)
        ran = CliRunner().invoke(reliable, arguments, obj=calling)
        assert ran.exit_code == 0, (command, ran.output, ran.exception)
        assert ran.output.strip(), command
    project.effects.open_gate("door")


def test_every_block_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk,), (counting,) = blocks(INDEX), blocks(STATUS)
    module = ModuleType("proj.celery")
    module.app = project.app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "proj", ModuleType("proj"))
    monkeypatch.setitem(sys.modules, "proj.celery", module)

    exec(compile(desk, "operations.rst", "exec"), {})

    assert "knows no task '4711'" in capsys.readouterr().out
    # It connects receivers for as long as its process lives.
    subprocess.run([sys.executable, "-c", counting], cwd=REPOSITORY, check=True, timeout=60)


def test_every_finding_is_told_of() -> None:
    told = set(re.findall(r"^([EW]\d{3}) +``(\w+)`` ", STATUS, re.MULTILINE))
    assert told == {(one.code, one.name) for one in RUNNING} | {("E005", "redis_evicts")}


def test_every_kind_of_waiting_is_told_of() -> None:
    assert rows("Tasks") - {"kind"} == {kind.value for kind in Wait}


def test_lines_are_no_longer_than_elsewhere() -> None:
    for path in sorted(Path(DOCS).glob("operations*.rst")):
        for line in path.read_text("utf-8").splitlines():
            assert len(line) <= 120, (path.name, line)
