"""Each promise, and each limit of one, has a file here, which begins with its sentence."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.promises import SECTIONS, Promise, promise, promised

HERE = Path(__file__).parent
FOLDERS = dict(zip(SECTIONS, (HERE, HERE / "limits"), strict=True))


def is_quick(test: ast.stmt, name: str) -> bool:
    """Whether this is a test of a promise that `tox run` runs."""
    if not isinstance(test, ast.FunctionDef):
        return False
    marks = [ast.unparse(one) for one in test.decorator_list]
    return "pytest.mark.full" not in marks and any(
        one.startswith(f"{promise.__name__}(") and f"'{name}'" in one for one in marks
    )


@pytest.mark.parametrize("one", promised(), ids=lambda one: one.name)
def test_the_file_begins_with_the_sentence_and_has_a_quick_test(one: Promise) -> None:
    path = FOLDERS[one.section] / f"test_{one.name.replace('-', '_')}.py"

    module = ast.parse(path.read_text("utf-8"))

    assert (ast.get_docstring(module) or "").startswith(one.lead)
    assert any(is_quick(test, one.name) for test in module.body)
