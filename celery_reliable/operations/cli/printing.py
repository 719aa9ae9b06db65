"""How values look at a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["console_of", "counted", "print_json", "shown", "to_second"]


def print_json(value: Mapping[str, Any]) -> None:
    """Print an object as JSON, in ASCII: the same in every locale.

    A list is its ``items``, so that more can be told beside it.
    """
    click.echo(json.dumps(value, indent=2))


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


def counted(number: int, noun: str) -> str:
    """Return "1 letter", "2 letters"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def to_second(iso: str | None) -> str:
    """Return a view's time as a table has it; empty for none."""
    return (iso or "")[:19].replace("T", " ")


def shown(value: object) -> str:
    """Return a value of a view as text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
