"""`docs/comparison.rst`: its tables are those of a run that is kept, and its commands exist."""

from __future__ import annotations

import json
import re
import shlex
import sys
from configparser import ConfigParser

import pytest

from benchmarks.arena import __main__ as arena
from benchmarks.arena.report import rst, settings_rst
from benchmarks.arena.systems import SYSTEMS
from tests.docs.blocks import DOCS, ROOT, Page

PAGES = ("comparison.rst",)
PAGE = Page(*PAGES)
COMMANDS = PAGE.commands()
(FILE,) = re.findall(r"``docs/(benchmarks/arena-[\d-]+\.json)``", PAGE.text)
RUN = json.loads((DOCS / FILE).read_text())


def test_the_tables_are_those_of_the_run() -> None:
    assert rst(RUN) in PAGE.text
    assert settings_rst(RUN) in PAGE.text
    assert list(RUN["systems"]) == list(SYSTEMS)
    assert f"the {RUN['about']['bound_seconds']:.0f} seconds" in PAGE.text


def test_the_settings_are_those_that_the_arena_has() -> None:
    for name, system in SYSTEMS.items():
        assert RUN["systems"][name]["settings"] == system.settings


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    environments = ConfigParser(interpolation=None)
    environments.read(ROOT / "tox.ini")
    assert words[:4] == ["tox", "run", "-e", "arena"]
    assert "testenv:arena" in environments

    monkeypatch.setattr(sys, "argv", ["arena", *words[5:]])
    assert arena._options().only
