"""What is promised and what is not, by name, and the tests that uphold each.

`docs/promises.rst` and `docs/limits.rst` say it; ``python -m tests.support.promises`` writes the
list of tests, `docs/promises-tests.rst`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SAID = (_ROOT / "docs" / "promises.rst", _ROOT / "docs" / "limits.rst")
TESTS = _ROOT / "tests"
PAGE = _ROOT / "docs" / "promises-tests.rst"

#: The sections whose bullets are promises, and what is their limit.
SECTIONS = ("What is promised", "What is not promised")

_SECTION = re.compile(r"^(?P<title>\S.*)\n(?P<line>[=-])(?P=line)*\n", re.MULTILINE)
_BULLET = re.compile(r"^\* (?:``([a-z0-9-]+)`` \*\*(.+?)\*\*)?", re.MULTILINE | re.DOTALL)

_HEAD = """\
Promises and their tests
========================

.. Written by ``python -m tests.support.promises``; a test compares it with pages and tests.

Each promise (:doc:`promises`), and each limit of one (:doc:`limits`), has a name.
``@promise("…")`` marks the tests that uphold it.
"""


def promise(*names: str) -> pytest.MarkDecorator:
    """Mark a test that upholds the bullets of these names."""
    return pytest.mark.promise(*names)


@dataclass(frozen=True)
class Promise:
    """A bullet of a page: its section, its name ("" where it has none) and how it begins."""

    section: str
    name: str
    lead: str


def promised() -> list[Promise]:
    """All that the documentation promises, and does not, in the order of the pages."""
    found = []
    for page in _SAID:
        _, *parts = _SECTION.split(page.read_text("utf-8"))
        for title, text in zip(parts[::3], parts[2::3], strict=True):
            bullets = _BULLET.findall(text) if title in SECTIONS else ()
            found += [Promise(title, name, " ".join(lead.split())) for name, lead in bullets]
    return found


def marked() -> list[tuple[str, str, str]]:
    """The module, the test and the name of every marker, in their order."""
    return sorted(
        (path.relative_to(_ROOT).as_posix(), test.name, ast.literal_eval(name))
        for path in TESTS.rglob("test_*.py")
        for test in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(test, ast.FunctionDef)
        for call in test.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "promise"
        for name in call.args
    )


def page() -> str:
    """The page that lists the tests of each promise."""
    found, promises = marked(), promised()
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"{section}\n{'-' * len(section)}\n")
        for one in (one for one in promises if one.section == section):
            lines = [f"``{one.name}``", f"   {one.lead}", ""]
            of_it = [(module, test) for module, test, name in found if name == one.name]
            for module, tests in groupby(of_it, lambda each: each[0]):
                lines += [
                    f"   * ``{module}``",
                    "",
                    *(f"     * ``{name}``" for _, name in tests),
                    "",
                ]
            parts.append("\n".join(lines))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
