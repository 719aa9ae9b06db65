"""The security page says of every key what it holds, and of every word of ours in a message what a
lie gets.
"""

from __future__ import annotations

import re
from importlib import resources

from docutils import nodes

from celery_reliable.publishing.publication import PLACE
from celery_reliable.settings import ReliableConfig
from tests.docs.blocks import doctree, page_path
from tests.support.architecture import PACKAGE

PATH = page_path("security.rst")
LEDGER = resources.files("celery_reliable.ledger").joinpath("README.rst").read_text("utf-8")
#: A constant that is the name of a header or of a property.
CONSTANT = re.compile(r'^_?[A-Z][A-Z_, ]* = "(reliable(?:_\w+)?)"', re.MULTILINE)


def first_column(title: str) -> list[str]:
    """The first cell of each row of a section's table."""
    for section in doctree(PATH).findall(nodes.section):
        if section.next_node(nodes.title).astext() == title:
            body = section.next_node(nodes.tbody)
            return [row.next_node(nodes.entry).astext() for row in body.findall(nodes.row)]
    raise AssertionError(f"no section {title}")


def test_every_key_of_the_ledger_is_told() -> None:
    table = LEDGER.partition("Keys\n====")[2].partition("Rules\n=====")[0]
    declared = re.findall(r"^``([\w:<>]+)``", table, re.MULTILINE)

    assert len(declared) > 15
    assert first_column("What is stored where") == declared


def test_every_word_of_ours_in_a_message_is_told() -> None:
    told = " ".join(first_column("A producer that lies"))
    sources = (path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    ours = {word for text in sources for word in CONSTANT.findall(text)}

    assert "reliable" in ours
    assert len(ours) > 5
    # An option of the transport is in no message.
    assert set(re.findall(r"reliable\w*", told)) == ours - {PLACE}


def test_the_settings_that_it_names_are_there() -> None:
    text = PATH.read_text("utf-8")
    named = set(re.findall(r"``([A-Z]+(?:_[A-Z]+)+)``", text)) - {"SOURCE_DATE_EPOCH"}

    assert named <= {name.upper() for name in ReliableConfig.names()}
    assert {"DEAD_LETTER_MAX", "KEEP_ENDED"} <= named
