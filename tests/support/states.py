"""The states of a task, drawn from the moves that the ledger's scripts declare."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from xml.sax.saxutils import escape

from tests.support.rst import head, table

__all__ = ["Arrow", "arrows", "drawing", "moves", "page"]

#: Where each state stands: its middle, and what a reader calls it.
_PLACES = {
    "new": (80, 250, "not published"),
    "parked": (300, 90, "parked"),
    "queued": (300, 250, "queued"),
    "running": (600, 250, "running"),
    "waiting": (600, 90, "waiting"),
    "dead": (450, 430, "dead letter"),
    "ended": (850, 250, "ended"),
}
_HALF_WIDTH, _HALF_HEIGHT = 62, 24


@dataclass(frozen=True)
class _Way:
    """How an arrow goes: how far its middle is off the straight line, and where its name is."""

    bend: int = 0
    at: float = 0.5
    is_rare: bool = False


#: Every arrow that is drawn. What is rare has no name in the drawing; the table has it.
_WAYS = {
    ("new", "parked"): _Way(-25),
    ("new", "queued"): _Way(),
    ("new", "running"): _Way(85, is_rare=True),
    ("new", "dead"): _Way(40, is_rare=True),
    ("parked", "queued"): _Way(),
    ("parked", "ended"): _Way(-105, is_rare=True),
    ("parked", "waiting"): _Way(-25, is_rare=True),
    ("queued", "running"): _Way(-18),
    ("queued", "dead"): _Way(-32, 0.42),
    ("queued", "parked"): _Way(-25, is_rare=True),
    ("queued", "ended"): _Way(-120, is_rare=True),
    ("queued", "waiting"): _Way(-45, is_rare=True),
    ("running", "queued"): _Way(-34),
    ("running", "parked"): _Way(-20, 0.62),
    ("running", "waiting"): _Way(-22),
    ("running", "dead"): _Way(-25, 0.45),
    ("running", "ended"): _Way(),
    ("waiting", "queued"): _Way(-18, is_rare=True),
    ("waiting", "parked"): _Way(-25, is_rare=True),
    ("waiting", "ended"): _Way(-45),
    ("dead", "queued"): _Way(-32, 0.45),
    ("dead", "parked"): _Way(-130, is_rare=True),
    ("dead", "waiting"): _Way(-60, is_rare=True),
    ("dead", "ended"): _Way(60),
}

#: Of workers, whose states have some of the same names.
_OF_WORKERS = {"register", "heartbeat", "declare", "deregister"}


@dataclass(frozen=True)
class Arrow:
    """A move between two states, and who makes it: script and who calls that, one a move."""

    source: str
    target: str
    by: tuple[tuple[str, str], ...]

    @property
    def scripts(self) -> list[str]:
        """The scripts that make it, each once."""
        return list(dict.fromkeys(script for script, _ in self.by))


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
    known = {"absent", *_PLACES}
    return [one for one in found if {one[2], one[3]} <= known and one[2] != one[3]]


@cache
def arrows() -> tuple[Arrow, ...]:
    """What is drawn: no record at all is *not published* where it begins, and *ended* else."""
    by: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for script, who, source, target in moves():
        ends = ("new" if source == "absent" else source, "ended" if target == "absent" else target)
        by.setdefault(ends, []).append((script, who))
    return tuple(Arrow(*ends, tuple(made)) for ends, made in by.items())


def drawing() -> str:
    """The drawing, as SVG."""
    parts = [_HEAD]
    drawn = sorted(arrows(), key=lambda one: not _WAYS[one.source, one.target].is_rare)
    parts += [_line(one) for one in drawn]
    parts += [_name(one) for one in drawn if not _WAYS[one.source, one.target].is_rare]
    parts += [_box(name) for name in _PLACES]
    return "\n".join([*parts, "</svg>\n"])


def page() -> str:
    """The page of the states."""
    rows = [
        [
            _PLACES[one.source][2],
            _PLACES[one.target][2],
            "; ".join(f"``{script}`` ({who})" for script, who in one.by),
        ]
        for one in arrows()
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

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 480" font-family="sans-serif"
 font-size="14">
<!-- Written by `python -m tests.support.reference`; a test compares it with the scripts. -->
<defs>
<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
 orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker>
</defs>
<rect width="940" height="480" rx="8" fill="#fff"/>"""


def _states(text: str) -> list[str]:
    return [re.sub(r"\(.*\)", "", one).split(",")[0].strip() for one in text.split("|")]


def _curve(one: Arrow) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    """Begin, control point and end of an arrow, from the edge of one box to that of the other."""
    (x0, y0, _), (x2, y2, _) = _PLACES[one.source], _PLACES[one.target]
    dx, dy = x2 - x0, y2 - y0
    length = (dx * dx + dy * dy) ** 0.5
    bend = 2 * _WAYS[one.source, one.target].bend
    middle = ((x0 + x2) / 2 - dy / length * -bend, (y0 + y2) / 2 + dx / length * bend)
    return _edge((x0, y0), middle), middle, _edge((x2, y2), middle)


def _edge(box: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min(
        (_HALF_WIDTH + 3) / abs(dx) if dx else 9e9, (_HALF_HEIGHT + 3) / abs(dy) if dy else 9e9
    )
    return box[0] + dx * scale, box[1] + dy * scale


def _line(one: Arrow) -> str:
    (x0, y0), (x1, y1), (x2, y2) = _curve(one)
    is_rare = _WAYS[one.source, one.target].is_rare
    look = 'stroke="#bbb" stroke-dasharray="4 4"' if is_rare else 'stroke="#555" stroke-width="1.6"'
    path = f"M{x0:.0f} {y0:.0f} Q{x1:.0f} {y1:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{path}" fill="none" {look} marker-end="url(#end)"/>'


def _name(one: Arrow) -> str:
    start, control, end = _curve(one)
    t = _WAYS[one.source, one.target].at
    x, y = (
        (1 - t) ** 2 * start[axis] + 2 * t * (1 - t) * control[axis] + t * t * end[axis]
        for axis in (0, 1)
    )
    text = escape(", ".join(one.scripts))
    wide = 7.4 * len(text)
    return (
        f'<rect x="{x - wide / 2:.0f}" y="{y - 9:.0f}" width="{wide:.0f}" height="18" fill="#fff"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="#036">{text}</text>'
    )


def _box(name: str) -> str:
    x, y, text = _PLACES[name]
    color = {"dead": "#fbe3e4", "running": "#e3f4e3", "ended": "#eee", "new": "#eee"}.get(
        name, "#e6effa"
    )
    return (
        f'<rect x="{x - _HALF_WIDTH}" y="{y - _HALF_HEIGHT}" width="{2 * _HALF_WIDTH}" '
        f'height="{2 * _HALF_HEIGHT}" rx="8" fill="{color}" stroke="#333"/>'
        f'<text x="{x}" y="{y + 5}" text-anchor="middle" font-weight="bold">{text}</text>'
    )
