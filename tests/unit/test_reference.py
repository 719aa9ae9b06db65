"""The reference pages say what the code says."""

from __future__ import annotations

from dataclasses import fields
from xml.etree import ElementTree

import click
import pytest

import celery_reliable
from celery_reliable import ReliableConfig, exceptions
from celery_reliable.model import State
from celery_reliable.operations.cli import reliable
from celery_reliable.options import TaskOptions
from celery_reliable.options.definition import OPTIONS
from tests.support import states
from tests.support.reference import FOLDER, PAGES, comments
from tests.support.reference_doors import walk


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text("utf-8")

    assert written == PAGES[name](), "write it: python -m tests.support.reference"


def test_every_setting_and_option_says_what_it_is() -> None:
    assert {one.name for one in fields(ReliableConfig)} == comments(ReliableConfig).keys()
    assert OPTIONS.keys() == comments(TaskOptions).keys()


def test_every_command_and_option_says_what_it_does() -> None:
    found = dict(walk(reliable, ()))

    assert {("status",), ("dead-letters", "replay")} <= found.keys()
    silent = [
        (words, option.name)
        for words, command in found.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert silent == []
    assert [words for words, command in found.items() if not command.help] == []


def test_the_drawing_names_the_states_and_the_scripts_that_move_a_task() -> None:
    drawn = ElementTree.parse(FOLDER / "states.svg").getroot().itertext()
    said = {word for text in drawn for word in text.strip().split(", ")} - {""}
    scripts = {script for one in states.arrows() for script in one.scripts}

    assert set(states.NAMES.values()) <= said <= {*states.NAMES.values(), *scripts}
    (claim,) = (one for one in states.arrows() if (one.source, one.target) == ("queued", "running"))
    assert claim.scripts == ["claim"]


def test_every_state_is_a_word_that_is_explained() -> None:
    concepts = (FOLDER.parent / "concepts.rst").read_text("utf-8")

    assert {state.value for state in State} <= {*states.NAMES, "absent"}
    for word in ("attempt", "token", "lease", "pass", "loss", "fence", "parked", "waiting"):
        assert f"\n{word}\n   " in concepts


def test_every_public_name_has_its_place() -> None:
    said = (FOLDER / "python.rst").read_text("utf-8")
    named = {*exceptions.__all__, "__version__"}

    missing = {one for one in celery_reliable.__all__ if f"celery_reliable.{one}" not in said}
    assert missing <= named
