"""The measure of the package's size counts code, and nothing else."""

from __future__ import annotations

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
