"""What each command needs of its terminal: the app and the desk that are asked from there, errors
as an operator reads them, values as text and as JSON, and how far a long act is.
"""

from __future__ import annotations

import io
import json
import logging
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from celery import Celery

from celery_reliable.exceptions import ConfigurationError, LedgerUnavailable, ReliableError
from celery_reliable.log import logger
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.messages import printable
from celery_reliable.operations.operation import BadParameter, Progress
from celery_reliable.operations.queues import broker_asked
from celery_reliable.operations.views import as_json

__all__ = [
    "WIDEST",
    "app_of",
    "console_of",
    "desk_of",
    "errors_told",
    "interruptible",
    "print_json",
    "print_pairs",
    "shown",
]

#: One cell that is wider does not move the cells of all other rows to the right.
WIDEST = 40

#: As a shell has it of a process that SIGINT has ended.
_INTERRUPTED = 130


def app_of(ctx: click.Context) -> Celery:
    """Return the app with its modules imported: in a Django project nothing else sets Django up."""
    app = ctx.obj.app
    app.loader.import_default_modules()
    app.finalize()
    if not logger.hasHandlers():
        # The command itself answers what an operator does.  Warnings would go beside it to stderr.
        handler = logging.StreamHandler()
        handler.setLevel(logging.ERROR)
        logger.addHandler(handler)
    return app


class _LedgerAway(click.ClickException):
    """The ledger cannot be reached."""

    exit_code = 3


@contextmanager
def errors_told(ctx: click.Context) -> Iterator[None]:
    """Turn what an operator can do something about into one paragraph on stderr, exit code 1; 3
    when the ledger cannot be reached.
    """
    try:
        yield
    except LedgerUnavailable as exc:
        raise _LedgerAway(printable(str(exc))) from exc
    except BadParameter as exc:
        raise click.UsageError(printable(str(exc))) from exc
    except ReliableError as exc:
        # Each problem of a configuration is a line.
        keeps = "\n" if isinstance(exc, ConfigurationError) else ""
        raise click.ClickException(printable(str(exc), keeps=keeps)) from exc


@contextmanager
def desk_of(ctx: click.Context) -> Iterator[Desk]:
    """Open the desk of the command's app; errors are told as by `errors_told`."""
    # Whoever has a shell of the project may read its messages.
    with (
        errors_told(ctx),
        Desk(app_of(ctx), sees_arguments=True) as desk,
        broker_asked(desk.app),
    ):
        yield desk


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


@contextmanager
def interruptible(verb: str, total: int | None) -> Iterator[Progress]:
    """Draw the progress of what is done within, on stderr where that is a terminal.  On Ctrl-C say
    the command that does the rest, and exit as what is interrupted does.

    *total*: how many letters, or tasks, are meant; None: not known.
    """
    more: Mapping[str, Any] = {}
    where = sys.stderr if sys.stderr.isatty() else io.StringIO()
    # The bar wants a length, or something that has none.
    of_any: Any = None if total is not None else map(str, ())
    bar: Any = click.progressbar(of_any, total, verb, show_pos=True, file=where)

    def take(count: int, rest: Mapping[str, Any]) -> None:
        nonlocal more
        more = rest
        bar.update(count - bar.pos)

    try:
        with bar:
            yield take
    except KeyboardInterrupt:
        words = [*sys.argv[1:]]
        for name, value in more.items():
            words += [f"--{name.replace('_', '-')}", str(as_json(value))]
        of = "" if total is None else f" of {total}"
        said = f"Interrupted: {bar.pos}{of} {verb}; that stays so. To go on:"
        click.echo(f"{said}\n  celery {shlex.join(words)}", err=True)
        sys.exit(_INTERRUPTED)
