"""The commands that look at dead letters."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping
from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.model import DeadLetter
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.choosing import filter_of, filter_options, group_option
from celery_reliable.operations.cli.printing import (
    console_of,
    counted,
    print_json,
    shown,
    to_second,
)
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.filters import Filter
from celery_reliable.operations.pages import Page, gathered
from celery_reliable.operations.tables import print_list, print_pairs, printable
from celery_reliable.operations.views import full_view, short_view

__all__ = ["dead_letters"]

_LONGEST_EXCEPTION = 200
#: A list of what fits looks for so long; then it says where it goes on.
_LOOK_SECONDS = 2.0


@click.group("dead-letters")
def dead_letters() -> None:
    """Tasks that were put aside: lost too often, failed for good, or not readable."""


@dead_letters.command("list", cls=CeleryCommand)
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many."
)
@click.option("--cursor", default="", help="Go on where the page that gave it has ended.")
@group_option
@filter_options
@as_json_option
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    limit: int,
    cursor: str,
    group: str,
    as_json: bool,
    **given: Any,
) -> None:
    """List dead letters, the latest first."""
    console = None if as_json else console_of(ctx)
    wanted = filter_of(given)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        page = _found(desk, wanted, group, cursor, limit)
        total = desk.letters.count()
    views = [short_view(letter) for letter in page.items]
    if console is None:
        print_json({**page.view(short_view), "is_last": page.is_last, "total": total})
    else:
        if views:
            print_list(
                console,
                ("task id", "reason", "buried (UTC)"),
                [(one["task_id"], one["reason"], to_second(one["buried_at"])) for one in views],
                [_about(view) for view in views],
            )
        click.echo(f"{len(views)} of {counted(total, 'dead letter')}")
    if page.cursor:
        click.echo(f"There may be more:\n--cursor {page.cursor}", err=True)


def _found(desk: Desk, wanted: Filter, group: str, cursor: str, limit: int) -> Page[DeadLetter]:
    """Return what is found while a person waits."""
    return gathered(
        lambda cursor, limit: desk.letter_pages.page(
            wanted, group=group, cursor=cursor, limit=limit
        ),
        cursor,
        limit,
        _LOOK_SECONDS,
    )


@dead_letters.command("groups", cls=CeleryCommand)
@filter_options
@as_json_option
@click.pass_context
def groups(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Group dead letters by task, reason, cause and exception, the largest group first.

    Of the filters only those are allowed that are about what a group has in common: --task,
    --reason, --exception, --cause and --text.
    """
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        until = time.monotonic() + _LOOK_SECONDS
        found = desk.letter_pages.groups(filter_of(given))
        while not found.is_complete and time.monotonic() < until:
            found = desk.letter_pages.groups(filter_of(given))
    if console is None:
        print_json(found.as_dict())
        return
    views = found.as_dict()["groups"]
    if views:
        print_list(
            console,
            ("group", "letters", "first (UTC)", "last (UTC)"),
            [
                (
                    one["group"],
                    str(one["count"]),
                    to_second(one["first_at"]),
                    to_second(one["last_at"]),
                )
                for one in views
            ],
            [_common(one) for one in views],
        )
    click.echo(f"{counted(len(views), 'group')} of {counted(found.letters, 'dead letter')}")
    if not found.is_complete:
        click.echo(f"The group is known of {found.grouped} so far; ask again.", err=True)


@dead_letters.command("show", cls=CeleryCommand)
@click.argument("task_id", metavar="ID")
@click.option(
    "--with-arguments", is_flag=True, help="Show the arguments and the whole message, unredacted."
)
@as_json_option
@click.pass_context
def show_command(ctx: click.Context, task_id: str, with_arguments: bool, as_json: bool) -> None:
    """Show one dead letter; its arguments only when asked for."""
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        letter = desk.letters.get(task_id)
    view: dict[str, Any] = dict(full_view(letter, with_arguments=with_arguments))
    if console is None:
        print_json(view)
        return
    history, traceback, death = view.pop("history"), view.pop("traceback"), view.pop("death")
    print_pairs(
        console,
        [
            pair
            for name, value in {**view, "killed by": death or {}}.items()
            for pair in (_said(name, value) if isinstance(value, dict) else [(name, shown(value))])
        ],
    )
    click.echo()
    if history:
        print_list(
            console,
            ("at (UTC)", "what", "attempt"),
            [(to_second(one["at"]), one["what"], shown(one["attempt"] or None)) for one in history],
            [
                [
                    f"{name}: {shown(value)}"
                    for name, value in one.items()
                    if value and name not in ("at", "what", "attempt")
                ]
                for one in history
            ],
        )
        click.echo()
    if traceback:
        # No line of it begins where a line of ours does.
        click.echo(textwrap.indent(printable(traceback, keeps="\n\t"), "  "))


def _about(view: Mapping[str, Any]) -> list[str]:
    died_of = view["exception"]
    if len(died_of) > _LONGEST_EXCEPTION:
        died_of = f"{died_of[:_LONGEST_EXCEPTION]}…"
    named = f"{view['name'] or '(not readable)'}, attempts: {view['attempts']}"
    return [named, died_of]


def _common(view: Mapping[str, Any]) -> list[str]:
    parts = (view["reason"], view["cause"], view["exception"])
    return [f"{view['task'] or '(not readable)'}: {', '.join(part for part in parts if part)}"]


def _said(title: str, values: Mapping[str, Any]) -> list[tuple[str, str]]:
    # Most headers of most messages say nothing.
    nothing: tuple[Any, ...] = (None, "", False, [], {}, [None, None])
    said = [f"{name}: {shown(one)}" for name, one in values.items() if one not in nothing]
    return [("" if number else title, line) for number, line in enumerate(said or [""])]
