"""How values look at a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from celery_reliable.operations.views import as_json
from celery_reliable.operations.words import printable

__all__ = ["WIDEST", "console_of", "print_json", "print_pairs", "shown"]

#: One cell that is wider does not move the cells of all other rows to the right.
WIDEST = 40


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
