"""The commands of tasks and of the objects that they have to themselves."""

from __future__ import annotations

from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.exceptions import ObjectIdError
from celery_reliable.operations.cli.calling import as_json_option, desk_of
from celery_reliable.operations.cli.choosing import filter_of, filter_options
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
from celery_reliable.operations.pages import Kind, Page, gathered
from celery_reliable.operations.views import Holder, Object, Task
from celery_reliable.operations.views import as_json as plain
from celery_reliable.operations.words import printable

__all__ = ["objects", "show", "tasks"]

#: How long a list is looked for before it says where to go on.
_LOOKING_SECONDS = 2.0

limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many."
)
cursor_option = click.option("--cursor", default="", help="Go on where a list before has ended.")


@click.command("tasks", cls=CeleryCommand)
@click.option("--state", type=click.Choice([kind.value for kind in Kind]), help="Only in this.")
@filter_options
@limit_option
@cursor_option
@as_json_option
@click.pass_context
def tasks(
    ctx: click.Context,
    /,
    state: str | None,
    limit: int,
    cursor: str,
    as_json: bool,
    **given: Any,
) -> None:
    """List tasks with what each waits for: those that run, then those that wait.

    Dead letters are listed with --state dead, the oldest first; --reason and --exception need it.
    """
    console = console_of(ctx, as_json=as_json)
    # Whoever has a shell of the project may read its messages.
    with desk_of(ctx, sees_arguments=True) as desk:
        page = _page(desk, filter_of(given), Kind(state) if state else None, cursor, limit)
    if console is None:
        print_json(page)
        return
    if page.items:
        print_list(
            console,
            ("task id", "state", "since (UTC)"),
            [(one.task_id, one.state, to_second(one.why.since)) for one in page.items],
            [[one.name or "(no name)", one.why.sentence] for one in page.items],
        )
    _print_end(page, "task")


def _page(desk: Desk, wanted: Filter, kind: Kind | None, cursor: str, limit: int) -> Page[Task]:
    """Return as much as is found in a while: with a filter a page may be short."""
    return gathered(
        lambda cursor, limit: desk.tasks.page(wanted, kind=kind, cursor=cursor, limit=limit),
        cursor,
        limit,
        _LOOKING_SECONDS,
    )


@click.command("show", cls=CeleryCommand)
@click.argument("task_id", metavar="ID")
@as_json_option
@click.pass_context
def show(ctx: click.Context, task_id: str, as_json: bool) -> None:
    """Show one task, whatever became of it: its state, why it waits, and what happened to it.

    Of its arguments nothing is shown but the id of its object; `dead-letters show` has those of a
    dead letter.
    """
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx, sees_arguments=True) as desk:
        view = desk.tasks.get(task_id)
    if console is None:
        print_json(view)
        return
    console.print(printable(view.why.sentence))
    if view.state == "absent" and not view.history:
        return
    click.echo()
    told = plain(view)
    del told["history"]
    told["waits for"] = told.pop("why")["kind"]
    pairs = [
        (name.replace("_", " "), shown(value))
        for name, value in told.items()
        if value not in ("", [], {})
    ]
    print_pairs(console, [pair for pair in pairs if pair[1]])
    if view.history:
        click.echo()
        print_list(
            console,
            ("at (UTC)", "what", "attempt"),
            [(to_second(one.at), one.what, str(one.attempt or "")) for one in view.history],
            [about_entry(one) for one in view.history],
        )


@click.command("objects", cls=CeleryCommand)
@click.argument("key", metavar="[KEY]", default="")
@click.option("--task", help="The object of this task, with --id; alone: all of its places.")
@click.option("--id", "object_id", help="The object's id, as its task is called with it.")
@limit_option
@cursor_option
@as_json_option
@click.pass_context
def objects(
    ctx: click.Context,
    key: str,
    task: str | None,
    object_id: str | None,
    limit: int,
    cursor: str,
    as_json: bool,
) -> None:
    """List the objects that tasks have, each with its places, or show who has one and who waits for
    it: who stands in its line in order, and then who tries again.

    An object is named by its KEY, or by --task and --id; --task alone means a task of which so
    many run at a time (at_most without object_id).
    """
    if task is None and object_id is not None:
        raise click.UsageError("--id goes with --task.")
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx, sees_arguments=True) as desk:
        if task is not None:
            key = _key_of(desk, task, object_id)
        if key:
            found = desk.objects.get(key, task_name=task or "", object_id=object_id)
            page = Page((found,), "", 1)
        else:
            page = desk.objects.page(cursor, limit=limit)
    if console is None:
        print_json(page.items[0] if key else page)
        return
    if page.items:
        print_list(
            console,
            ("object", "since (UTC)"),
            [(one.object_key, to_second(one.since)) for one in page.items],
            [_about(one) for one in page.items],
        )
    if not key:
        _print_end(page, "object")


def _key_of(desk: Desk, task: str, object_id: str | None) -> str:
    try:
        return desk.objects.key_of(task, object_id)
    except ObjectIdError as exc:
        raise click.UsageError(printable(str(exc))) from exc


def _about(one: Object) -> list[str]:
    lines = [one.object_name] if one.object_name != one.object_key else []
    if one.has_places:
        line = f", {one.in_line} in line" if one.in_line else ""
        lines.append(f"{len(one.holders)} of {one.places} places taken{line}")
    elif one.is_free:
        lines.append("free")
    if one.kept_seconds is not None:
        lines.append(f"kept after {one.holder} for {one.kept_seconds:.0f} s yet")
    else:
        lines += [_holder(holder) for holder in one.holders]
    lines += [f"waits: {task_id}" for task_id in one.waiters]
    if one.has_more:
        lines.append("There may be more that wait.")
    return lines


def _holder(one: Holder) -> str:
    where = f", on {one.worker.rpartition('/')[0]}" if one.worker else ""
    return f"{one.name}[{one.task_id}], {one.state or 'has ended'}{where}"


def _print_end(page: Page[Any], noun: str) -> None:
    click.echo(f"{counted(len(page.items), noun)}, {page.looked_at} looked at")
    if not page.is_last:
        click.echo(f"There may be more:\n--cursor {page.cursor}")
