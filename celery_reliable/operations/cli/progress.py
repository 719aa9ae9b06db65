"""How far a long act is, and how it goes on when somebody interrupts it."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from celery_reliable.operations.operation import Progress
from celery_reliable.operations.views import as_json

__all__ = ["interruptible"]

#: As a shell has it of a process that SIGINT has ended.
_INTERRUPTED = 130


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
