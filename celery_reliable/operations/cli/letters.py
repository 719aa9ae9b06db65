"""The commands that look at dead letters."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping
from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.cli.calling import as_json_option, desk_of
from celery_reliable.operations.cli.choosing import filter_of, filter_options, group_option
from celery_reliable.operations.cli.printing import (
    about_entry,
    console_of,
    counted,
    print_json,
    print_list,
    print_pairs,
    shown,
    to_second,
)
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.filters import Filter
from celery_reliable.operations.letters import full_view
from celery_reliable.operations.pages import Page, gathered
from celery_reliable.operations.views import DeadLetter, Group
from celery_reliable.operations.views import as_json as plain
from celery_reliable.operations.words import printable

__all__ = ["dead_letters"]

_LONGEST_EXCEPTION = 200
#: A list of what fits looks for so long; then it says where it goes on.
_LOOK_SECONDS = 2.0


@click.group("dead-letters")
def dead_letters() -> None:
    """Tasks that were put aside: lost too often, failed for good, or not readable."""


@dead_letters.command("list", cls=CeleryCommand)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many."
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
    console = console_of(ctx, as_json=as_json)
    wanted = filter_of(given)
    with desk_of(ctx) as desk:
        page = _found(desk, wanted, group, cursor, limit)
        total = desk.letters.count()
    if console is None:
        print_json({**plain(page), "total": total})
    else:
        if page.items:
            print_list(
                console,
                ("task id", "reason", "buried (UTC)"),
                [(one.task_id, one.reason, to_second(one.buried_at)) for one in page.items],
                [_about(one) for one in page.items],
            )
        click.echo(f"{len(page.items)} of {counted(total, 'dead letter')}")
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
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx) as desk:
        until = time.monotonic() + _LOOK_SECONDS
        found = desk.letter_pages.groups(filter_of(given))
        while not found.is_complete and time.monotonic() < until:
            found = desk.letter_pages.groups(filter_of(given))
    if console is None:
        print_json(found)
        return
    if found.groups:
        print_list(
            console,
            ("group", "letters", "first (UTC)", "last (UTC)"),
            [
                (one.group, str(one.count), to_second(one.first_at), to_second(one.last_at))
                for one in found.groups
            ],
            [_common(one) for one in found.groups],
        )
    click.echo(f"{counted(len(found.groups), 'group')} of {counted(found.letters, 'dead letter')}")
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
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx) as desk:
        letter = desk.letters.get(task_id)
    found = full_view(letter, with_arguments=with_arguments)
    if console is None:
        print_json(found)
        return
    pairs = plain(found)
    for name in ("history", "traceback"):
        del pairs[name]
    pairs["killed by"] = pairs.pop("death") or {}
    print_pairs(
        console,
        [
            pair
            for name, value in pairs.items()
            for pair in (_said(name, value) if isinstance(value, dict) else [(name, shown(value))])
        ],
    )
    click.echo()
    if found.history:
        print_list(
            console,
            ("at (UTC)", "what", "attempt"),
            [(to_second(one.at), one.what, str(one.attempt or "")) for one in found.history],
            [about_entry(one) for one in found.history],
        )
        click.echo()
    if found.traceback:
        # No line of it begins where a line of ours does.
        click.echo(textwrap.indent(printable(found.traceback, keeps="\n\t"), "  "))


def _about(one: DeadLetter) -> list[str]:
    died_of = one.exception
    if len(died_of) > _LONGEST_EXCEPTION:
        died_of = f"{died_of[:_LONGEST_EXCEPTION]}…"
    return [f"{one.name or '(not readable)'}, attempts: {one.attempts}", died_of]


def _common(one: Group) -> list[str]:
    parts = (one.reason, one.cause, one.exception)
    return [f"{one.task or '(not readable)'}: {', '.join(part for part in parts if part)}"]


def _said(title: str, values: Mapping[str, Any]) -> list[tuple[str, str]]:
    # Most headers of most messages say nothing.
    nothing: tuple[Any, ...] = (None, "", False, [], {}, [None, None])
    said = [f"{name}: {shown(one)}" for name, one in values.items() if one not in nothing]
    return [("" if number else title, line) for number, line in enumerate(said or [""])]
