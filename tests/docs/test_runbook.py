"""The runbook has an entry for each alarm, finding and line of the log that asks for a person, and
none for what there is no more.
"""

from __future__ import annotations

import logging
import re

from docutils import nodes

from celery_reliable.findings import RUNNING, SERVER
from tests.docs.blocks import Page, doctree
from tests.integration.desk.monitored import RULES
from tests.support.processes import REPOSITORY
from tests.support.telling import lines

RUNBOOK, LOG = Page("runbook.rst"), Page("runbook-log.rst")

#: What every entry says, in this order, behind what it is about.
SAID = ["means", "see", "do", "ignored"]
ABOUT = {"alert", "finding", "lines"}


def entries(page: Page) -> dict[str, dict[str, str]]:
    """The entries of a page by their anchors, each with its fields as they are written."""
    found = {}
    for section in doctree(page.path).findall(nodes.section):
        lists = [one for one in section.children if isinstance(one, nodes.field_list)]
        if lists:
            (fields,) = lists
            found[section["ids"][0]] = {
                name.astext(): said.astext()
                for name, said in (field.children for field in fields.children)
            }
    return found


ALL = {**entries(RUNBOOK), **entries(LOG)}


def names(about: str) -> list[str]:
    """What the entries are about, in one field."""
    return [
        name for fields in ALL.values() for name in re.findall(r"[\w.]{4,}", fields.get(about, ""))
    ]


def findings() -> set[str]:
    """What `status --check` may say: codes and names."""
    return {f"{one.code} {one.name}" for one in (*RUNNING, *SERVER)}


def test_every_entry_says_all() -> None:
    for anchor, fields in ALL.items():
        about = [name for name in fields if name in ABOUT]
        assert about, anchor
        assert list(fields) == [*about, *SAID], anchor
        assert all(len(text) > 3 for text in fields.values()), anchor


def test_every_alarm_has_its_entry_and_points_to_it() -> None:
    told = names("alert")
    assert sorted(told) == sorted(rule["alert"] for rule in RULES)
    for rule in RULES:
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert REPOSITORY / path == RUNBOOK.path
        assert rule["alert"] in ALL[anchor]["alert"], rule["alert"]


def test_every_finding_has_its_entry() -> None:
    told = [
        one for fields in ALL.values() for one in re.findall(r"\w+ \w+", fields.get("finding", ""))
    ]
    assert sorted(told) == sorted(findings())
    # A finding is found by its name.
    for anchor, fields in entries(RUNBOOK).items():
        if "finding" in fields:
            assert f" {anchor.replace('-', '_')}" in fields["finding"]


def test_every_line_that_warns_has_its_entry() -> None:
    told = names("lines")
    warning = {name for name, level in lines().items() if level >= logging.WARNING}
    assert sorted(told) == sorted(warning)


def test_every_other_line_is_named() -> None:
    rest = LOG.text.partition("Lines that ask for nothing")[2]
    quiet = {name for name, level in lines().items() if 0 < level < logging.WARNING}
    # Of a finding's levels one is lower.
    assert set(re.findall(r"``([a-z_]+)``", rest)) - {"holder", "until", "only_workers"} == quiet
