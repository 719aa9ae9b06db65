"""`events`, lengths of time and completion, of a process of their own where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery.bin.celery import celery
from click.shell_completion import ShellComplete
from click.testing import Result

from celery_reliable.operations import KINDS, Desk
from celery_reliable.operations.cli import reliable
from tests.integration.commands import invoke
from tests.integration.conftest import Project
from tests.support.processes import REPOSITORY


@pytest.fixture
def run(project: Project) -> Callable[..., Result]:
    return partial(invoke, project.app)


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
    assert "attempt 1, losses 1" in listed.output
    assert "holder id-1" in listed.output
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
    done = subprocess.run(
        [program],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
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


def test_an_order_holds_for_as_long_as_is_said(desk: Desk, run: Callable[..., Result]) -> None:
    def pause(said: str) -> int:
        return run("pause", "mail", "--later", "--for", said).exit_code

    for said, seconds in (("15m", 900), ("2h", 7200), ("90", 90), ("0.5", 0.5)):
        assert pause(said) == 0
        *_, order = desk.orders.all()
        assert order.until is not None
        assert order.given_at is not None
        held = order.until - order.given_at
        assert held.total_seconds() == pytest.approx(seconds, abs=0.005)
        desk.orders.resume([order.id], by="ann")
    for wrong in ("soon", "0", "-1", "15 min", "nan"):
        assert pause(wrong) == 2
