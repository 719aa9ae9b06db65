"""The example project's own tests, run by Django's runner in a process of their own."""

from __future__ import annotations

import pytest

from tests.example.conftest import EXAMPLE, Marked

MANAGE = str(EXAMPLE / "manage.py")


@pytest.mark.parametrize(
    "arguments",
    [
        ("test", "documents"),
        ("check", "--fail-level", "WARNING"),
        ("makemigrations", "--check", "--dry-run"),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_the_example_passes_its_own_tests_and_djangos(
    marked: Marked, arguments: tuple[str, ...]
) -> None:
    assert marked.start(MANAGE, *arguments).wait(timeout=120) == 0, marked.said()
