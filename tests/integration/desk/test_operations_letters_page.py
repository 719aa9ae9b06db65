"""`docs/operations-letters.rst`: each command and block is run, and its table is what is there."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import fields
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from celery_reliable.operations import Desk, Filter
from celery_reliable.operations.cli import reliable
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.processes import REPOSITORY

PAGES = ("operations-letters.rst",)
PAGE = (REPOSITORY / "docs" / "operations-letters.rst").read_text("utf-8")
COMMANDS = re.findall(r"^    celery -A proj (reliable .+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", list(dict.fromkeys(COMMANDS)))
def test_every_command_runs(project: Project, command: str) -> None:
    for number in range(3):
        put(project, f"letter-{number}")
    with Desk(project.app) as desk:
        (group,) = desk.letter_groups.all().groups
        before = desk.letters.count()
        said = command.replace("GROUP", group.group).replace("ID", "letter-0")
        _, *arguments = shlex.split(said)

        ran = CliRunner().invoke(
            reliable, arguments, obj=SimpleNamespace(app=project.app, no_color=True)
        )

        assert ran.exit_code == 0, (ran.output, ran.exception)
        assert ran.output.strip()
        if "--group" in arguments and "replay" in arguments and "--dry-run" not in arguments:
            assert desk.letters.count() == before - 3


def test_the_block_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", PAGE)
    module = ModuleType("proj.celery")
    module.app = project.app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "proj", ModuleType("proj"))
    monkeypatch.setitem(sys.modules, "proj.celery", module)
    put(project, "one")

    exec(compile(re.sub(r"^    ", "", block, flags=re.MULTILINE), "page", "exec"), {})

    assert "1 project.work" in capsys.readouterr().out


def test_every_part_of_a_filter_is_told_of() -> None:
    told = set(re.findall(r"^``--([\w-]+)`` ", PAGE, re.MULTILINE)) - {"group"}

    names = {one.name.removesuffix("_seconds").replace("_", "-") for one in fields(Filter)}
    assert told == names
