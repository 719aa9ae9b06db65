"""How values look at a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from celery_reliable.operations.views import as_json
from celery_reliable.operations.words import printable

__all__ = ["console_of", "print_json", "print_list", "print_pairs", "shown", "to_second"]

_INDENT = 4
#: One cell that is wider does not move the cells of all other rows to the right.
_WIDEST = 40


def print_json(value: Any) -> None:
    """Print a view, or an object that holds some, as JSON, in ASCII: the same in every locale."""
    click.echo(json.dumps(as_json(value), indent=2))


def console_of(ctx: click.Context) -> Any:
    """Return where tables go.  Exits with 2 when the package that draws them is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        raise click.UsageError(
            "Tables are drawn by the package rich, which is not installed: "
            'pip install "celery-reliable[cli]", or ask for --json.',
        ) from None
    return Console(no_color=bool(ctx.obj.no_color), highlight=False, markup=False, emoji=False)


def to_second(when: datetime | None) -> str:
    """Return a time as a table has it; empty for none."""
    return f"{when:%Y-%m-%d %H:%M:%S}" if when else ""


def shown(value: object) -> str:
    """Return a value of a view as text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def print_pairs(console: Any, pairs: Sequence[tuple[str, str]]) -> None:
    """Print names, which are not folded, and what they are."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, show_header=False, pad_edge=False)
    for name, text in pairs:
        drawn.add_row(
            Text(printable(name), "bold", no_wrap=True), Text(printable(text), overflow="fold")
        )
    console.print(drawn)


def print_list(
    console: Any,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    abouts: Sequence[list[str]],
) -> None:
    """Print *rows* of short cells, and below each the lines *about* it, over the whole width: in a
    column of their own they would be folded to shreds.  Nothing is cut.
    """
    from rich.padding import Padding
    from rich.text import Text

    cells = [titles, *[[printable(cell) for cell in row] for row in rows]]
    widths = [min(max(len(row[index]) for row in cells), _WIDEST) for index in range(len(titles))]
    for row, about in zip(cells, [[], *abouts], strict=True):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(Text(line.rstrip(), "bold" if row is titles else ""))
        for said in filter(None, about):
            console.print(Padding(Text(printable(said)), (0, 0, 0, _INDENT)))
