"""The commands of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.printing import (
    console_of,
    counted,
    print_json,
    shown,
    to_second,
)
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.tables import print_list, print_pairs, printable
from celery_reliable.operations.views import full_view, short_view

__all__ = ["dead_letters"]

_LONGEST_EXCEPTION = 200


@click.group("dead-letters")
def dead_letters() -> None:
    """Tasks that were put aside: lost too often, failed for good, or not readable."""


@dead_letters.command("list", cls=CeleryCommand)
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many."
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="After so many.")
@as_json_option
@click.pass_context
def list_(ctx: click.Context, limit: int, offset: int, as_json: bool) -> None:
    """List dead letters, the latest first."""
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), DeadLetters(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as letters:
        views = [short_view(letter) for letter in letters.list(limit, offset)]
        total = letters.count()
    if console is None:
        print_json(views)
        return
    if views:
        print_list(
            console,
            ("task id", "reason", "buried (UTC)"),
            [(view["task_id"], view["reason"], to_second(view["buried_at"])) for view in views],
            [_about(view) for view in views],
        )
    click.echo(f"{len(views)} of {counted(total, 'dead letter')}")


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
    with errors_told(ctx), DeadLetters(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as letters:
        view = full_view(letters.get(task_id), with_arguments=with_arguments)
    if console is None:
        print_json(view)
        return
    history, traceback = view.pop("history"), view.pop("traceback")
    for name in ("headers", "properties"):
        view[name] = _said(view.get(name) or {})
    print_pairs(console, [(name, shown(value)) for name, value in view.items()])
    click.echo()
    if history:
        print_list(
            console,
            ("at (UTC)", "what", "attempt"),
            [(to_second(one["at"]), one["what"], shown(one["attempt"] or None)) for one in history],
            [
                "\n".join(
                    f"{name}: {shown(value)}"
                    for name, value in one.items()
                    if value and name not in ("at", "what", "attempt")
                )
                for one in history
            ],
        )
        click.echo()
    if traceback:
        click.echo(printable(traceback))


@dead_letters.command("replay", cls=CeleryCommand)
@click.argument("task_id", metavar="ID")
@as_json_option
@click.pass_context
def replay(ctx: click.Context, task_id: str, as_json: bool) -> None:
    """Return a dead letter to its queue, under its id, with fresh budgets of losses and retries."""
    with errors_told(ctx), DeadLetters(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as letters:
        done = letters.replay(task_id)
    if as_json:
        print_json(
            {
                "task_id": done.task_id,
                "replayed": True,
                "next_attempt": done.attempt,
                "sent": done.is_sent,
                "problem": done.problem,
            }
        )
        return
    click.echo(f"Replayed {printable(task_id)}: its next run is attempt {done.attempt}.")
    if not done.is_sent:
        click.echo(
            f"Its message could not be sent yet ({printable(done.problem)}). Nothing is lost: "
            "the sweeper sends it when the broker is back.",
            err=True,
        )


@dead_letters.command("discard", cls=CeleryCommand)
@click.argument("task_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json_option
@click.pass_context
def discard(ctx: click.Context, task_id: str, yes: bool, as_json: bool) -> None:
    """Remove a dead letter for good."""
    with errors_told(ctx), DeadLetters(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as letters:
        if not yes:
            what = f"{letters.get(task_id).name or 'the message'}[{task_id}]"
            click.confirm(f"Discard {printable(what)} for good?", abort=True, err=True)
        letters.discard(task_id)
    if as_json:
        print_json({"task_id": task_id, "discarded": True})
    else:
        click.echo(f"Discarded {printable(task_id)}.")


def _about(view: Mapping[str, Any]) -> str:
    exception = view["exception"]
    if len(exception) > _LONGEST_EXCEPTION:
        exception = f"{exception[:_LONGEST_EXCEPTION]}…"
    named = f"{view['name'] or '(not readable)'}, attempts: {view['attempts']}"
    return f"{named}\n{exception}" if exception else named


def _said(headers: Mapping[str, Any]) -> str:
    # Most headers of most messages say nothing.
    said = {name: one for name, one in headers.items() if one not in (None, [], {}, [None, None])}
    return "\n".join(f"{name}: {shown(one)}" for name, one in said.items())
