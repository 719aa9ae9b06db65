"""What happened lately, and what happens."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import textwrap
from collections.abc import Callable

import click

from celery_reliable.operations.cli.command import Call
from celery_reliable.operations.cli.printing import print_json, to_second
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.views import Happening, as_json
from celery_reliable.operations.words import counted, printable

__all__ = ["FOLLOW", "events"]

_INDENT, _LEAST_WIDTH = 4, 20
FOLLOW = (
    click.Option(
        ["--follow"],
        is_flag=True,
        help="Go on with what happens, until Ctrl-C; with --json each line is one event.",
    ),
)

Show = Callable[[Happening], None]


def events(call: Call) -> None:
    """Print what happened, and with --follow what happens from then on."""
    show = _shown_as_json if call.is_json else _shown
    if not call.more["follow"]:
        found = call.run()
        if call.is_json:
            print_json(found)
            return
        for one in found.items:
            show(one)
        click.echo(counted(len(found.items), "event"))
        return
    with call.opened() as desk:
        found = call.operation.run(desk, call.given)
        try:
            for one in found.items:
                show(one)
            _follow(desk, found.cursor, call, show)
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            # Whoever read has heard enough.  Python would try to write once more as it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _follow(desk: Desk, cursor: str, call: Call, show: Show) -> None:
    wanted = {name: call.given[name] for name in ("kinds", "task") if name in call.given}
    for found in desk.happenings.follow(cursor, **wanted, on_away=_tell_away):
        for one in found.items:
            show(one)
        if not _is_read():
            return


def _tell_away(error: Exception) -> None:
    click.echo(f"Waiting for the ledger: {printable(str(error))}", err=True)


def _is_read() -> bool:
    """Whether somebody can still read what is printed: `head` does not wait for the next event."""
    try:
        out = sys.stdout.fileno()
    except (OSError, ValueError):
        return True
    asked = select.poll()
    asked.register(out, 0)
    return not asked.poll(0)


def _shown_as_json(one: Happening) -> None:
    click.echo(json.dumps(as_json(one)))


def _shown(one: Happening) -> None:
    # By no library that draws: those end the process by themselves when nobody reads any more.
    width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns)
    head = f"{to_second(one.at)}  {one.kind}  {one.name}"
    about = "  ".join(filter(None, (one.task_id, one.sentence)))
    for text, indent in ((head, ""), (about, " " * _INDENT)):
        for line in textwrap.wrap(
            printable(text), width, initial_indent=indent, subsequent_indent=" " * _INDENT
        ):
            click.echo(line)
