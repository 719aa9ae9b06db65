"""The commands that list what happened lately, what happens, and what operators did."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.cli.calling import as_json_option, desk_of
from celery_reliable.operations.cli.choosing import AGE
from celery_reliable.operations.cli.printing import (
    console_of,
    counted,
    print_json,
    print_things,
    to_second,
)
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.happenings import KINDS
from celery_reliable.operations.views import Audited, Happening
from celery_reliable.operations.views import as_json as plain
from celery_reliable.operations.words import printable

__all__ = ["audit", "events"]

_INDENT, _LEAST_WIDTH = 4, 20

Show = Callable[[Happening], None]


@click.command("events", cls=CeleryCommand)
@click.option("--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option(
    "--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only these; may be repeated."
)
@click.option("--task", default="", help="Of tasks with this name, which may be a pattern, or id.")
@click.option("--since", "since_seconds", type=AGE, help="Only so old: 90, 15m, 2h.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many."
)
@as_json_option
@click.pass_context
def events(
    ctx: click.Context,
    follow: bool,
    kinds: Sequence[str],
    task: str,
    since_seconds: float | None,
    limit: int,
    as_json: bool,
) -> None:
    """List what happened to tasks and workers off the straight way, the latest at the end.

    What goes well is not among it.  With --follow and --json each line is one event.
    """
    show = _shown_as_json if as_json else _shown
    with desk_of(ctx) as desk:
        found = desk.happenings.page(
            limit=limit, kinds=kinds, task=task, newer_than_seconds=since_seconds
        )
        if not follow:
            if as_json:
                print_json(found)
                return
            for one in found.items:
                show(one)
            click.echo(counted(len(found.items), "event"))
            return
        try:
            for one in found.items:
                show(one)
            _follow(desk, found.cursor, kinds, task, show)
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            # Whoever read has heard enough.  Python would try to write once more as it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _follow(desk: Desk, cursor: str, kinds: Sequence[str], task: str, show: Show) -> None:
    for found in desk.happenings.follow(cursor, kinds=kinds, task=task, on_away=_tell_away):
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
    click.echo(json.dumps(plain(one)))


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


@click.command("audit", cls=CeleryCommand)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many."
)
@as_json_option
@click.pass_context
def audit(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List what operators did to dead letters, the latest first: when it began, and how it ended.

    What has a beginning and no end was killed, or goes on.
    """
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx) as desk:
        found = desk.audit(limit)
    print_things(
        console,
        found,
        "entry",
        ("act", "at (UTC)", "what", "done"),
        lambda one: (one.run, to_second(one.at), f"{one.act}, {one.phase}", str(one.done)),
        _about,
    )


def _about(one: Audited) -> list[str]:
    return [f"{one.by}: {json.dumps(one.about)}", one.problem]
