"""The states of a task, from the moves that the ledger's scripts declare."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from tests.support.rst import head, table

#: What a reader calls each state.
NAMES = {
    "new": "not published",
    "parked": "parked",
    "queued": "queued",
    "running": "running",
    "waiting": "waiting",
    "dead": "dead letter",
    "ended": "ended",
}

#: Of workers, whose states have some of the same names.
_OF_WORKERS = {"register", "heartbeat", "declare", "deregister"}


def moves() -> list[tuple[str, str, str, str]]:
    """Script, who calls it, from, to: the rows of the ledger's table that are about tasks.

    A test of the ledger compares that table with the scripts.
    """
    readme = resources.files("celery_reliable.ledger").joinpath("README.rst").read_text("utf-8")
    transitions = readme.partition("Transitions\n====")[2].partition("Keys\n====")[0]
    lines = [line for line in transitions.splitlines() if line.startswith(("script ", "``"))]
    who_at, moves_at = (lines[0].index(name) for name in ("called by", "moves"))
    found, before = [], ""
    for line in lines[1:]:
        script, who = line[:who_at].strip(" `"), line[who_at:moves_at].strip()
        before = who = before + who[8:] if who.startswith("the same") else who
        source, _, target = line[moves_at:].partition(" -> ")
        if target and script not in _OF_WORKERS:
            found += [(script, who, one, two) for one in _states(source) for two in _states(target)]
    known = {"absent", *NAMES}
    return [one for one in found if {one[2], one[3]} <= known and one[2] != one[3]]


@cache
def arrows() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The moves between two states that the page lists, each with the scripts that make it and who
    calls those: no record is *not published* where it begins, and *ended* else.
    """
    by: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for script, who, source, target in moves():
        ends = ("new" if source == "absent" else source, "ended" if target == "absent" else target)
        by.setdefault(ends, []).append((script, who))
    return by


def page() -> str:
    """The page of the states."""
    rows = [
        [NAMES[source], NAMES[target], "; ".join(f"``{script}`` ({who})" for script, who in by)]
        for (source, target), by in arrows().items()
    ]
    return (
        head(
            "States of a task",
            """
            Every move that there is, made of what the scripts of the ledger declare. Each is one
            script, which Redis runs as a whole; nothing else changes a state. What the words mean:
            :doc:`/concepts`.
            """,
        )
        + f"{PICTURE}\n"
        + table(["from", "to", "by"], rows, "18 18 64")
        + "\nA task that is *not published*, or has *ended*, has no record: a message that the"
        " ledger\nnever recorded is claimed, or buried, all the same.\n"
    )


PICTURE = """\
.. image:: states.svg
   :alt: From not published by record to parked or queued; by claim to running; by settle to ended.
         A running task is queued again by lose and release, or dead; a dead letter is queued by
         replay, or ended by discard.
   :width: 100%
"""


def _states(text: str) -> list[str]:
    return [re.sub(r"\(.*\)", "", one).split(",")[0].strip() for one in text.split("|")]
