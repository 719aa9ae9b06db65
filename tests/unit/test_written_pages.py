"""The pages that programs write say what the code and the tests say, and nothing is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from xml.etree import ElementTree

import click
import pytest
from celery.utils.dispatch import Signal

import celery_reliable
from celery_reliable import ReliableConfig, events, exceptions, signals
from celery_reliable.model import State
from celery_reliable.operations.cli import reliable
from celery_reliable.options import TaskOptions
from celery_reliable.options.definition import OPTIONS
from celery_reliable.version import __version__
from docs.writing import FOLDER, NAMES, PAGES, arrows, comments, walk
from tests.docs.blocks import ROOT
from tests.support import promises
from tests.support.telling import tellers_of


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text("utf-8")

    assert written == PAGES[name](), "write it: python -m docs.writing"


def test_every_promise_has_a_name_and_a_test_and_every_marker_a_promise() -> None:
    promised = promises.promised()
    names = [one.name for one in promised]
    assert {one.section for one in promised} == {*promises.SECTIONS}
    assert len({*names} - {""}) == len(names)
    assert {name for _, _, name in promises.marked()} == {*names}
    written = promises.PAGE.read_text("utf-8")
    assert written == promises.page(), "write it: python -m tests.support.promises"


def test_every_setting_option_and_command_says_what_it_is() -> None:
    assert {one.name for one in fields(ReliableConfig)} == comments(ReliableConfig).keys()
    assert OPTIONS.keys() == comments(TaskOptions).keys()
    found = dict(walk(reliable, ()))
    assert {("status",), ("dead-letters", "replay")} <= found.keys()
    assert [words for words, command in found.items() if not command.help] == []
    assert [
        (words, option.name)
        for words, command in found.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ] == []


def test_the_drawing_names_the_states_and_the_scripts_that_move_a_task() -> None:
    drawn = ElementTree.parse(FOLDER / "states.svg").getroot().itertext()
    said = {word for text in drawn for word in text.strip().split(", ")} - {""}
    scripts = {script for by in arrows().values() for script, _ in by}

    assert set(NAMES.values()) <= said <= {*NAMES.values(), *scripts}
    assert {script for script, _ in arrows()["queued", "running"]} == {"claim"}


def test_every_state_is_a_word_that_is_explained() -> None:
    concepts = (FOLDER.parent / "concepts.rst").read_text("utf-8")

    assert {state.value for state in State} <= {*NAMES, "absent"}
    for word in ("attempt", "token", "lease", "pass", "loss", "fence", "waiting", "waker"):
        assert f"\n{word}\n   " in concepts


def test_every_public_name_has_its_place() -> None:
    said = (FOLDER / "python.rst").read_text("utf-8")
    named = {*exceptions.__all__, "__version__"}

    missing = {one for one in celery_reliable.__all__ if f"celery_reliable.{one}" not in said}
    assert missing <= named


def test_every_event_is_reported_and_every_signal_is_of_one() -> None:
    assert all(tellers_of(one) for one in events.DECLARED.values())
    made = {name: one for name, one in vars(signals).items() if isinstance(one, Signal)}
    assert set(made) == set(signals.__all__)
    wanted = {name for name, one in events.DECLARED.items() if one.signal is not None}
    assert wanted == {one.name for one in made.values()}


def test_no_two_modules_have_one_name() -> None:
    counts = Counter(path.name for path in promises.TESTS.rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_release_is_named_in_one_place_and_has_its_section() -> None:
    assert celery_reliable.__version__ == __version__
    setup = (ROOT / "setup.cfg").read_text("utf-8")
    assert "version = attr: celery_reliable.version.__version__" in setup
    lines = (ROOT / "CHANGELOG.rst").read_text("utf-8").splitlines()
    sections = [lines[n - 1] for n, line in enumerate(lines) if line and set(line) == {"-"}]
    assert __version__ in [one.partition(" ")[0] for one in sections]
