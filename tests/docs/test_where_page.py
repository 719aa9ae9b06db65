"""`docs/where.rst` has a row for each option and command, and what the row says is there: the page,
the doors, the metrics, and what shows it at work in a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from celery_reliable.operations import ACTS, QUERIES
from celery_reliable.operations.cli import reliable
from celery_reliable.options.calls import CALL_OPTIONS
from celery_reliable.options.definition import OPTIONS
from tests.docs.blocks import DOCS, ROOT, Page, claims
from tests.docs.commands import inline
from tests.support.reference_doors import metric_names, walk

#: Those of calls, of rows and of workers that no table of the package's own has.
MORE = ("if_exists", "priority", "run_on")
ROWS = ("row_model", "effect", "if_open", "unpublished")
WORKERS = ("GIVE_BACK_SECONDS",)
#: The pages of the admin, by the table that `tests/contrib` compares with them.
ADMIN = set(
    re.findall(
        r"^``(\w+)`` ",
        Page("operations-admin.rst")
        .text.partition("\nPages\n")[2]
        .partition("\nActs on many\n")[0],
        re.MULTILINE,
    )
)

TEXT = (DOCS / "where.rst").read_text("utf-8")
CLAIMED = claims(ROOT / "tests")

Row = tuple[tuple[str, ...], dict[str, str]]


def rows(section: str) -> list[Row]:
    """The rows of a table: what each is about, and its other cells by their columns."""
    text = re.split(rf"\n{section}\n-+\n", TEXT)[1]
    text = re.split(r"\n\w+\n-{4,}\n", text)[0]
    head, *found = [
        [" ".join(cell.split()) for cell in row.split("\n     - ")]
        for row in text.split("\n   * - ")[1:]
    ]
    assert all(len(one) == len(head) for one in found)
    return [(tuple(names(one[0])), dict(zip(head[1:], one[1:], strict=True))) for one in found]


def names(cell: str) -> list[str]:
    return re.findall(r"``([^`]+)``", cell)


OF_OPTIONS, OF_COMMANDS = rows("Options"), rows("Commands")
EVERY = [(name, cells) for about, cells in (*OF_OPTIONS, *OF_COMMANDS) for name in about]


def test_each_option_has_a_row() -> None:
    told = [name for about, _ in OF_OPTIONS for name in about]

    assert sorted(told) == sorted({*OPTIONS, *CALL_OPTIONS, *MORE, *ROWS, *WORKERS})


def test_each_command_has_a_row() -> None:
    told = [name for about, _ in OF_COMMANDS for name in about]

    assert sorted(told) == sorted(" ".join(words) for words, _ in walk(reliable, ()))


@pytest.mark.parametrize(("name", "cells"), EVERY, ids=[name for name, _ in EVERY])
def test_what_its_row_says_is_there(name: str, cells: dict[str, str]) -> None:
    known = {
        "command line": {" ".join(words) for words, _ in walk(reliable, ())},
        "admin": ADMIN,
        "API": {
            "GET openapi.json",
            *(f"GET {one.path}" for one in QUERIES if one.path),
            *(f"POST {one.path}" for one in ACTS if one.path),
        },
        "metrics": metric_names(),
    }
    for column in known.keys() & cells.keys():
        cell = cells[column]
        assert cell.startswith("none: ") or set(names(cell)) <= known[column], (column, cell)
        assert cell.startswith("none: ") or names(cell), column
    (page,) = re.findall(r":doc:`([\w/-]+)`", cells["page"])
    said = f"reliable {name}" if "admin" in cells and "command line" not in cells else name
    assert re.search(rf"\b{said}\b", (DOCS / f"{page}.rst").read_text("utf-8")), page
    assert not page.startswith("reference/")
    assert any(re.search(rf"\b{said}\b", text) for text in shown(cells["shown in"])), cells


def shown(cell: str) -> Iterator[str]:
    """What a test runs: the file of the example project, or the blocks and sentences of a page."""
    files = names(cell)
    if files and files[0].endswith(".py"):
        assert "example_project/README.rst" in CLAIMED
        yield (ROOT / files[0]).read_text("utf-8")
        return
    name = files[0] if files else re.findall(r":doc:`([\w/-]+)`", cell)[0] + ".rst"
    assert name in CLAIMED, f"no test runs {name}"
    page = Page(name)
    yield from (block.text for block in page.blocks if block.is_runnable)
    yield from inline(page.text)
