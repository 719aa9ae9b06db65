"""`events` and completion at a terminal, of a process of their own where that matters."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from celery.bin.celery import celery
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from celery_reliable.operations import KINDS, Desk
from celery_reliable.operations.cli import reliable
from tests.integration.commands import entry_point_path
from tests.integration.conftest import APP, Project
from tests.support.processes import REPOSITORY

PAGES = ("operations-live.rst",)
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn(project: Project, tmp_path: Path) -> Iterator[Spawn]:
    """Start `celery -A … reliable …` with the project's settings."""
    started: list[subprocess.Popen[bytes]] = []

    def spawn(*arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join(filter(None, [entry_point_path(tmp_path), str(REPOSITORY)]))
        environ = project.environ("ready:none", {"PYTHONPATH": paths})
        environ = {**environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        program = (sys.executable, "-m", "celery", "-A", APP, "reliable", *arguments)
        started.append(subprocess.Popen(program, env=environ, cwd=tmp_path, **streams))
        return started[-1]

    yield spawn
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def run(project: Project) -> Callable[..., Result]:
    """Run a command in this process."""

    def run(*arguments: str) -> Result:
        calling = SimpleNamespace(app=project.app, no_color=True)
        return CliRunner().invoke(reliable, arguments, obj=calling, env={"COLUMNS": "80"})

    return run


def note(desk: Desk, kind: str = "task_lost", **about: Any) -> None:
    assert desk.ledger.happenings.note(kind, about)


def test_events_lists_what_is_wanted(
    desk: Desk, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        note(desk, name="billing.charge\x1b[2J", id=f"id-{number}", attempt=1, losses=1)
    note(desk, "task_skipped", name="a", id="other", holder="id-1")

    listed = run("events")
    assert listed.exit_code == 0
    assert max(map(len, listed.output.splitlines())) <= 80
    assert "\x1b" not in listed.output
    assert "billing.charge\\x1b[2J" in listed.output
    assert "attempt 1, 1 loss" in listed.output
    assert "held by id-1" in listed.output
    assert listed.output.endswith("\n4 events\n")
    told = json.loads(run("events", "--json", "--limit", "2").stdout)
    assert [one["task_id"] for one in told["items"]] == ["id-2", "other"]
    assert told["items"][1]["about"] == {"holder": "id-1"}

    def ids(*arguments: str) -> list[str]:
        return [
            one["task_id"]
            for one in json.loads(run("events", "--json", *arguments).stdout)["items"]
        ]

    assert ids("--kind", "task_skipped") == ["other"]
    assert ids("--task", "billing.*", "--since", "10m") == ["id-0", "id-1", "id-2"]
    assert ids("--kind", "task_lost", "--task", "other") == []
    assert run("events", "--kind", "no_such").exit_code == 2


def completed(*arguments: str, incomplete: str = "") -> list[str]:
    """What the shell is told for `celery -A proj reliable ARGUMENTS INCOMPLETE`."""
    asked = ShellComplete(celery, {"auto_envvar_prefix": "CELERY"}, "celery", "_CELERY_COMPLETE")
    found = asked.get_completions(["-A", "proj", "reliable", *arguments], incomplete)
    return [one.value for one in found]


def test_the_shell_completes_commands_options_and_values(tmp_path: Path) -> None:
    celery.add_command(reliable)
    assert set(reliable.commands) == set(completed())
    assert completed(incomplete="ev") == ["events"]
    assert completed("events", "--kind") == list(KINDS)
    assert completed("tasks", incomplete="--st") == ["--state"]
    assert "parked" in completed("tasks", "--state")
    assert completed("dead-letters", "list", "--reason", incomplete="l") == ["lost"]

    # As the shell asks: without importing the app, whose module is not there.
    program = tmp_path / "celery"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom celery.__main__ import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    paths = os.pathsep.join(filter(None, [entry_point_path(tmp_path), str(REPOSITORY)]))
    done = subprocess.run(
        [program],
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "_CELERY_COMPLETE": "bash_complete",
            "COMP_WORDS": "celery -A nowhere reliable tasks --state pa",
            "COMP_CWORD": "6",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "plain,parked\n"


def test_each_command_and_block_of_the_page_runs(
    project: Project,
    desk: Desk,
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    note(desk, name="billing.charge", id="4711", attempt=1)
    page = (REPOSITORY / "docs" / "operations-live.rst").read_text("utf-8")
    commands = re.findall(r"^    celery -A proj reliable (.+)$", page, re.MULTILINE)
    assert commands
    for command in commands:
        ran = run(*shlex.split(command))
        assert ran.exit_code == 0, (command, ran.output)
        assert ran.output.strip(), command

    (block,) = re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", page)
    module = ModuleType("proj.celery")
    module.app = project.app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "proj", ModuleType("proj"))
    monkeypatch.setitem(sys.modules, "proj.celery", module)
    exec(compile(textwrap.dedent(block), "operations-live.rst", "exec"), {})
    assert capsys.readouterr().out == "['attempt 1']\n"
