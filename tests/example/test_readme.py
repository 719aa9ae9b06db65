"""The front door: its two commands are what CI runs, and the others are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from celery import Celery

from tests.docs.blocks import Page, run

PAGES = ("README.rst", "CONTRIBUTING.rst", "migrating/beside.rst")
ROOT = Path(__file__).resolve().parent.parent.parent
README, CONTRIBUTING, BESIDE = map(Page, PAGES)
COMMANDS = README.commands() + CONTRIBUTING.commands() + BESIDE.commands()
#: Who starts here reads all of it.
MOST_LINES = 150


def test_the_two_commands_are_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text()

    for command in ("tox run -e demo", "tox run"):
        assert command in README.commands()
        assert re.search(rf"^{command}(?: |$)", ci, re.MULTILINE), command
    assert "tox run" in CONTRIBUTING.commands()


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_every_command_is_there(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "celery":
        # What each does is shown by the tests of the pages that it is taken from.
        ran = run(f"{command} --help", Celery(set_as_current=False))
        assert ran.exit_code == 0, ran.output
        assert all(one in ran.output for one in arguments if one.startswith("--"))
    elif program == "pip":
        # What CI does with the wheel of this checkout.
        assert arguments in (["install", "tox"], ["install", "celery-reliable[django,cli]"])
    else:
        assert command in ("tox run", "tox run -e demo")


def test_it_is_a_front_door_and_no_house() -> None:
    assert len(README.text.splitlines()) <= MOST_LINES
