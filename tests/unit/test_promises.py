"""Each promise, and each limit of one, is upheld by a test that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.promises import (
    PAGE,
    TESTS,
    Found,
    Promise,
    faults,
    marked_below,
    page,
    promised,
    read,
)

PROMISED, LIMIT = "What is promised", "What is not promised"

PAGE_OF_TWO = """\
Head
====

* **No promise.** Though it looks like one.

What is promised
================

For all:

* ``never-two`` **Never two
  at once.** Two of one task

  never run.
* ``safe`` **Safe.**

What is not promised
====================

* **Speed**, nor this.

Settings
========

* **No promise** either.
"""

MODULE = """\
@promise("safe", "never-two")
@pytest.mark.parametrize("how", [1])
def test_both(how): ...

def test_none(): ...

@promise("safe")
def helper(): ...

class TestThose:
    @promise("gone")
    def test_one(self): ...
"""


def test_every_promise_has_a_name_and_a_test_and_every_marker_a_promise() -> None:
    promises = promised()
    assert {one.section for one in promises} == {PROMISED, LIMIT}
    assert faults(promises, marked_below(TESTS)) == []


def test_the_page_says_so() -> None:
    expected = page(promised(), marked_below(TESTS))
    assert PAGE.read_text("utf-8") == expected, "write it: python -m tests.support.promises"


def test_bullets_of_two_sections_are_promises() -> None:
    assert read(PAGE_OF_TWO) == [
        Promise(PROMISED, "never-two", "Never two at once."),
        Promise(PROMISED, "safe", "Safe."),
        Promise(LIMIT, "", "**Speed**, nor this."),
    ]


def test_markers_are_found_at_tests_alone(tmp_path: Path) -> None:
    below = tmp_path / "tests" / "unit"
    below.mkdir(parents=True)
    (below / "test_it.py").write_text(MODULE)
    (below / "it.py").write_text(MODULE)
    assert marked_below(tmp_path / "tests") == [
        Found("tests/unit/test_it.py", "TestThose::test_one", "gone"),
        Found("tests/unit/test_it.py", "test_both", "never-two"),
        Found("tests/unit/test_it.py", "test_both", "safe"),
    ]


@pytest.mark.parametrize(
    ("promises", "found", "fault"),
    [
        ([("", "Lead.")], [], "no name on the page: Lead."),
        ([("a", "A."), ("a", "B.")], ["a"], "twice on the pages: a"),
        ([("a", "A."), ("b", "B.")], ["b"], "no test: a"),
        ([("a", "A.")], ["a", "b"], "no such promise: b (tests/test_it.py::test_it)"),
    ],
)
def test_what_is_amiss_is_found(
    promises: list[tuple[str, str]], found: list[str], fault: str
) -> None:
    told = [Promise(PROMISED, name, lead) for name, lead in promises]
    assert faults(told, [Found("tests/test_it.py", "test_it", one) for one in found]) == [fault]
