"""Where tests are: a module's name says which it is."""

from __future__ import annotations

from collections import Counter

from tests.support.promises import TESTS


def test_no_two_modules_have_one_name() -> None:
    counts = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []
