"""The example project's own tests, run by Django's runner in a process of their own."""

from __future__ import annotations

from tests.example.conftest import EXAMPLE, Marked

MANAGE = str(EXAMPLE / "manage.py")


def test_the_example_passes_its_own_tests(marked: Marked) -> None:
    process = marked.start(MANAGE, "test", "documents")

    assert process.wait(timeout=120) == 0, marked.said()


def test_the_example_passes_djangos_checks(marked: Marked) -> None:
    process = marked.start(MANAGE, "check", "--fail-level", "WARNING")

    assert process.wait(timeout=60) == 0, marked.said()


def test_the_migrations_are_up_to_date(marked: Marked) -> None:
    process = marked.start(MANAGE, "makemigrations", "--check", "--dry-run")

    assert process.wait(timeout=60) == 0, marked.said()
