"""What pages list is what there is; each block of theirs is run by a test; links lead somewhere."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from docutils import nodes

from benchmarks.arena import __main__ as arena
from benchmarks.arena.report import rst, settings_rst
from benchmarks.arena.systems import SYSTEMS
from celery_reliable.findings import RUNNING, SERVER
from celery_reliable.operations import ACTS, QUERIES
from celery_reliable.operations.cli import reliable
from celery_reliable.options.calls import CALL_OPTIONS
from celery_reliable.options.definition import OPTIONS
from celery_reliable.publishing.publication import PLACE
from celery_reliable.settings import ReliableConfig
from docs.writing import metric_names, walk
from tests.docs.blocks import DOCS, ROOT, Page, claims, doctree, page_path, pages
from tests.integration.desk.test_monitoring import RULES
from tests.support.telling import lines

PAGES = ("comparison.rst",)


def codes(cell: str) -> list[str]:
    """What a cell has in double backquotes."""
    return re.findall(r"``([^`]+)``", cell)


# -- comparison.rst: the tables are those of a run that is kept

COMPARISON = Page(*PAGES)
COMMANDS = COMPARISON.commands()
(FILE,) = re.findall(r"``docs/(benchmarks/arena-[\d-]+\.json)``", COMPARISON.text)
RUN = json.loads((DOCS / FILE).read_text())


def test_the_tables_are_those_of_the_run() -> None:
    assert rst(RUN) in COMPARISON.text
    assert settings_rst(RUN) in COMPARISON.text
    assert list(RUN["systems"]) == list(SYSTEMS)
    assert f"the {RUN['about']['bound_seconds']:.0f} seconds" in COMPARISON.text
    for name, system in SYSTEMS.items():
        assert RUN["systems"][name]["settings"] == system.settings


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    environments = ConfigParser(interpolation=None)
    environments.read(ROOT / "tox.ini")
    assert words[:4] == ["tox", "run", "-e", "arena"]
    assert "testenv:arena" in environments

    monkeypatch.setattr(sys, "argv", ["arena", *words[5:]])
    assert arena._options().only


# -- compatibility.rst


def test_what_is_allowed_is_what_is_installed() -> None:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    options = config["options"]
    least = re.findall(r"^(\w+)(?:\[redis\])?>=([\d.]+)", options["install_requires"], re.MULTILINE)
    page = Page("compatibility.rst")
    told = {what: allowed for what, allowed, *_ in page.rows("Releases that go together")}

    assert told["Python"] == f"{options['python_requires'].strip('>=')} and later"
    called = {"celery": "Celery", "kombu": "kombu", "redis": "redis-py"}
    assert {called[name]: f"{release} and later" for name, release in least}.items() <= told.items()


# -- runbook.rst and runbook-log.rst: an entry for each alarm and finding, and each line that warns

RUNBOOK, LOG = Page("runbook.rst"), Page("runbook-log.rst")
#: What every entry says, in this order, behind what it is about.
SAID = ["means", "see", "do", "ignored"]


def entries(page: Page) -> dict[str, dict[str, str]]:
    """The entries of a page by their anchors, each with its fields as they are written."""
    return {
        section["ids"][0]: {
            name.astext(): said.astext() for name, said in (one.children for one in fields.children)
        }
        for section in doctree(page.path).findall(nodes.section)
        for fields in section.children
        if isinstance(fields, nodes.field_list)
    }


ALL = {**entries(RUNBOOK), **entries(LOG)}


def named(about: str, pattern: str = r"[\w.]{4,}") -> list[str]:
    """What the entries are about, in one field."""
    told = (fields.get(about, "") for fields in ALL.values())
    return sorted(name for text in told for name in re.findall(pattern, text))


def test_every_entry_says_all() -> None:
    for anchor, fields in ALL.items():
        about = [name for name in fields if name in ("alert", "finding", "lines")]
        assert about, anchor
        assert list(fields) == [*about, *SAID], anchor
        assert all(len(text) > 3 for text in fields.values()), anchor


def test_every_alarm_finding_and_line_has_its_entry() -> None:
    assert named("alert") == sorted(rule["alert"] for rule in RULES)
    for rule in RULES:
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert ROOT / path == RUNBOOK.path
        assert rule["alert"] in ALL[anchor]["alert"], rule["alert"]
    found = {f"{one.code} {one.name}" for one in (*RUNNING, *SERVER)}
    assert named("finding", r"\w+ \w+") == sorted(found)
    # A finding is found by its name.
    for anchor, fields in entries(RUNBOOK).items():
        if "finding" in fields:
            assert f" {anchor.replace('-', '_')}" in fields["finding"]
    warning = {name for name, level in lines().items() if level >= logging.WARNING}
    assert named("lines") == sorted(warning)
    quiet = {name for name, level in lines().items() if 0 < level < logging.WARNING}
    rest = re.findall(r"``([a-z_]+)``", LOG.section("Lines that ask for nothing"))
    # Of a finding's levels one is lower.
    assert set(rest) - {"holder", "until", "only_workers"} == quiet


# -- security.rst

SECURITY = Page("security.rst")
#: A constant that is the name of a header or of a property.
CONSTANT = re.compile(r'^_?[A-Z][A-Z_, ]* = "(reliable(?:_\w+)?)"', re.MULTILINE)


def test_every_key_of_the_ledger_is_told() -> None:
    readme = resources.files("celery_reliable.ledger").joinpath("README.rst").read_text("utf-8")
    table = readme.partition("Keys\n====")[2].partition("Rules\n=====")[0]
    declared = re.findall(r"^``([\w:<>]+)``", table, re.MULTILINE)

    assert len(declared) > 15
    assert [row[0].strip("`") for row in SECURITY.rows("What is stored where")[1:]] == declared


def test_every_word_of_ours_in_a_message_is_told() -> None:
    told = " ".join(row[0] for row in SECURITY.rows("A producer that lies"))
    sources = (path.read_text("utf-8") for path in (ROOT / "celery_reliable").rglob("*.py"))
    ours = {word for text in sources for word in CONSTANT.findall(text)}

    assert "reliable" in ours
    assert len(ours) > 5
    # An option of the transport is in no message.
    assert set(re.findall(r"reliable\w*", told)) == ours - {PLACE}


def test_the_settings_that_it_names_are_there() -> None:
    told = set(re.findall(r"``([A-Z]+(?:_[A-Z]+)+)``", SECURITY.text)) - {"SOURCE_DATE_EPOCH"}

    assert {"DEAD_LETTER_MAX", "KEEP_ENDED"} <= told
    assert told <= {name.upper() for name in ReliableConfig.names()}


# -- where.rst: a row for each option and command, and what the row says is there

WHERE = Page("where.rst")
#: Those of calls and of rows that no table of the package's own has.
MORE = ("if_exists", "priority", "run_on")
OF_ROWS = ("row_model", "effect", "if_open", "unpublished")
CLAIMED = claims(ROOT / "tests")
COMMAND_WORDS = {" ".join(words) for words, _ in walk(reliable, ())}


def rows(section: str) -> list[tuple[str, dict[str, str]]]:
    """What a table is about, and the other cells of its row by their columns."""
    head, *found = WHERE.rows(section)
    return [
        (name, dict(zip(head[1:], row[1:], strict=True))) for row in found for name in codes(row[0])
    ]


OF_OPTIONS, OF_COMMANDS = rows("Options"), rows("Commands")


def test_each_option_and_each_command_has_a_row() -> None:
    options = {*OPTIONS, *CALL_OPTIONS, *MORE, *OF_ROWS}
    assert sorted(name for name, _ in OF_OPTIONS) == sorted(options)
    assert sorted(name for name, _ in OF_COMMANDS) == sorted(COMMAND_WORDS)


@pytest.mark.parametrize(("name", "cells"), [*OF_OPTIONS, *OF_COMMANDS])
def test_what_its_row_says_is_there(name: str, cells: dict[str, str]) -> None:
    known = {
        "command line": COMMAND_WORDS,
        # `tests/contrib` compares that table with the pages of the admin.
        "admin": set(
            re.findall(r"^``(\w+)`` ", Page("operations-admin.rst").section("Pages"), re.MULTILINE)
        ),
        "API": {
            "GET openapi.json",
            *(f"GET {one.path}" for one in QUERIES if one.path),
            *(f"POST {one.path}" for one in ACTS if one.path),
        },
        "metrics": metric_names(),
    }
    for column in known.keys() & cells.keys():
        cell = cells[column]
        assert cell.startswith("none: ") or set(codes(cell)) <= known[column], (column, cell)
        assert cell.startswith("none: ") or codes(cell), column
    (page,) = re.findall(r":doc:`([\w/-]+)`", cells["page"])
    said = f"reliable {name}" if "admin" in cells and "command line" not in cells else name
    assert re.search(rf"\b{said}\b", (DOCS / f"{page}.rst").read_text("utf-8")), page
    assert not page.startswith("reference/")
    assert any(re.search(rf"\b{said}\b", text) for text in shown(cells["shown in"])), cells


def shown(cell: str) -> Iterator[str]:
    """What a test runs: the file of the example project, or the blocks and sentences of a page."""
    files = codes(cell)
    if files and files[0].endswith(".py"):
        assert "example_project/README.rst" in CLAIMED
        yield (ROOT / files[0]).read_text("utf-8")
        return
    name = files[0] if files else re.findall(r":doc:`([\w/-]+)`", cell)[0] + ".rst"
    assert name in CLAIMED, f"no test runs {name}"
    page = Page(name)
    yield from (block.text for block in page.blocks if block.is_runnable)
    yield from page.inline()


# -- what is claimed


@pytest.mark.parametrize("name", pages())
def test_a_page_is_run_by_a_test_and_leads_nowhere_in_vain(name: str) -> None:
    """All in one, as reading a page takes longer than looking at it."""
    blocks = Page(name).blocks

    assert [str(one) for one in blocks if not one.language] == [], "which language is it?"
    runnable = [str(one) for one in blocks if one.is_runnable]
    assert not runnable or name in CLAIMED, (
        f"no test claims the blocks of {name}: write tests/docs/test_<page>.py, which takes them "
        f"from the page, with PAGES = ({name!r},)"
    )
    assert runnable or name not in CLAIMED, f"nothing to run, but {CLAIMED[name]} claim it"
    assert broken(page_path(name)) == []


def test_who_claims_a_page_means_one_that_there_is() -> None:
    assert CLAIMED.keys() <= set(pages())


def broken(path: Path) -> list[str]:
    """The links and pictures of a page that lead nowhere, and the files that it names in vain."""
    tree = doctree(path)
    links = [node["refuri"] for node in tree.findall(nodes.reference) if "refuri" in node]
    links += [node["uri"] for node in tree.findall(nodes.image)]
    named = re.findall(r"``(docs/[\w./-]*\w)``", path.read_text("utf-8"))
    return [
        *(link for link in links if not _leads_somewhere(link, path.parent)),
        *(name for name in named if not (ROOT / name).exists()),
    ]


def _leads_somewhere(link: str, folder: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme:
        return parts.scheme in ("https", "mailto") and bool(parts.netloc or parts.path)
    return not parts.path or (folder / parts.path).exists()
