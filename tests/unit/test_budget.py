"""The measure of the package's size counts code, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import budget

CODE = '''
"""A docstring."""

from os import path

__all__ = ["twice"]


def twice(
    number: int,
) -> int:
    """Another."""
    # A comment.
    return (
        number
        * 2
    )
'''


def test_no_layout_changes_the_count() -> None:
    assert budget.code_lines(CODE) == 2
    assert budget.code_lines("def twice(number: int) -> int: return number * 2") == 2
    assert budget.code_lines("words = " + repr("x" * 172)) == 3


def test_a_part_that_outgrows_its_budget_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "celery_reliable"
    (package / "new").mkdir(parents=True)
    (package / "new" / "code.py").write_text(CODE)
    monkeypatch.setattr(budget, "PACKAGE", package)

    assert budget.main() == 1
    assert "celery_reliable/new has outgrown" in capsys.readouterr().err
