"""Each promise, and each limit of one, is upheld by a test that says so."""

from __future__ import annotations

import pytest

from tests.support.promises import PAGE, TESTS, Found, Promise, faults, marked_below, page, promised

PROMISED, LIMIT = "What is promised", "What is not promised"


def test_every_promise_has_a_name_and_a_test_and_every_marker_a_promise() -> None:
    promises = promised()
    assert {one.section for one in promises} == {PROMISED, LIMIT}
    assert faults(promises, marked_below(TESTS)) == []


def test_the_page_says_so() -> None:
    expected = page(promised(), marked_below(TESTS))
    assert PAGE.read_text("utf-8") == expected, "write it: python -m tests.support.promises"


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
