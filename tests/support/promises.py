"""What is promised and what is not, by name, and the tests that uphold each.

`docs/promises.rst` and `docs/limits.rst` say it; ``python -m tests.support.promises`` writes the
list of tests, `docs/promises-tests.rst`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = [
    "PAGE",
    "Found",
    "Promise",
    "faults",
    "marked_below",
    "page",
    "promise",
    "promised",
    "read",
]

_ROOT = Path(__file__).parents[2]
_SAID = (_ROOT / "docs" / "promises.rst", _ROOT / "docs" / "limits.rst")
TESTS = _ROOT / "tests"
PAGE = _ROOT / "docs" / "promises-tests.rst"

#: The sections whose bullets are promises, and what is their limit.
SECTIONS = ("What is promised", "What is not promised")

_SECTION = re.compile(r"^(?P<title>\S.*)\n(?P<line>[=-])(?P=line)*\n", re.MULTILINE)
_BULLET = re.compile(r"^\* (?P<text>.*(?:\n(?:  .*)?)*)", re.MULTILINE)
_NAMED = re.compile(r"``(?P<name>[a-z0-9-]+)`` \*\*(?P<lead>.+?)\*\*", re.DOTALL)

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


@dataclass(frozen=True, order=True)
class Found:
    """A marked test: its module, its name there, and the name in the marker."""

    module: str
    test: str
    promise: str


def promised() -> list[Promise]:
    """All that the documentation promises, and does not."""
    return [one for page in _SAID for one in read(page.read_text("utf-8"))]


def read(page: str) -> list[Promise]:
    """The bullets of the two sections in the text of a page, in their order."""
    heads = list(_SECTION.finditer(page))
    ends = [head.start() for head in heads[1:]] + [len(page)]
    return [
        _promise(head["title"], bullet["text"])
        for head, end in zip(heads, ends, strict=True)
        if head["title"] in SECTIONS
        for bullet in _BULLET.finditer(page, head.end(), end)
    ]


def marked_below(folder: Path) -> list[Found]:
    """Every marker of every test function in the modules below a folder."""
    return sorted(
        Found(path.relative_to(folder.parent).as_posix(), *found)
        for path in folder.rglob("test_*.py")
        for found in _marked(ast.parse(path.read_text("utf-8")).body)
    )


def faults(promises: list[Promise], found: list[Found]) -> list[str]:
    """What is wrong between the pages' bullets and the tests' markers, one line each."""
    names = [one.name for one in promises if one.name]
    upheld = {one.promise for one in found}
    return [
        *(f"no name on the page: {one.lead}" for one in promises if not one.name),
        *(f"twice on the pages: {name}" for name in sorted({*names}) if names.count(name) > 1),
        *(f"no test: {name}" for name in names if name not in upheld),
        *(
            f"no such promise: {one.promise} ({one.module}::{one.test})"
            for one in found
            if one.promise not in names
        ),
    ]


def page(promises: list[Promise], found: list[Found]) -> str:
    """The page that lists the tests of each promise."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"{section}\n{'-' * len(section)}\n")
        parts += [_entry(one, found) for one in promises if one.section == section]
    return "\n".join(parts)


def _promise(section: str, text: str) -> Promise:
    named = _NAMED.match(text)
    if named is None:
        return Promise(section, "", " ".join(text.split())[:60])
    return Promise(section, named["name"], " ".join(named["lead"].split()))


def _marked(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _marked(node.body, f"{within}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "promise":
                    for name in call.args:
                        yield within + node.name, ast.literal_eval(name)


def _entry(one: Promise, found: list[Found]) -> str:
    tests: dict[str, list[str]] = {}
    for marked in found:
        if marked.promise == one.name:
            tests.setdefault(marked.module, []).append(marked.test)
    lines = [f"``{one.name}``", f"   {one.lead}", ""]
    for module, names in tests.items():
        lines += [f"   * ``{module}``", "", *(f"     * ``{name}``" for name in names), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(promised(), marked_below(TESTS)), "utf-8")
