"""The commands of queues."""

from __future__ import annotations

import dataclasses

import click
from celery.bin.base import CeleryCommand

from celery_reliable.clock import span
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.printing import console_of, counted, print_json
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.queues import purge
from celery_reliable.operations.tables import print_list

__all__ = ["purge_command", "queues_command"]


@click.command("queues", cls=CeleryCommand)
@as_json_option
@click.pass_context
def queues_command(ctx: click.Context, as_json: bool) -> None:
    """List queues: how much waits, how long the oldest already, and who consumes them."""
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        found = desk.queues.all()
    if console is None:
        print_json({"items": [one.as_dict() for one in found]})
        return
    print_list(
        console,
        ("queue", "waiting", "oldest"),
        [
            (
                one.name,
                one.waiting,
                "" if one.oldest_seconds is None else span(one.oldest_seconds),
            )
            for one in found
        ],
        [[f"consumed by {', '.join(one.workers)}"] if one.workers else [] for one in found],
    )
    click.echo(counted(len(found), "queue"))


@click.command("purge", cls=CeleryCommand)
@click.option("-Q", "--queues", default="", help="Only these, with commas between. Default: all.")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@as_json_option
@click.pass_context
def purge_command(ctx: click.Context, queues: str, force: bool, as_json: bool) -> None:
    """Empty queues for good: without it, what `celery purge` removed would be sent again.

    What workers have fetched already still runs, and parked tasks stay parked: revoke those.
    """
    with errors_told(ctx):
        app = app_of(ctx)
        names = [name.strip() for name in queues.split(",") if name.strip()]
        names = names or sorted(app.amqp.queues)
        if not force and not as_json:
            click.confirm(f"Remove all messages of {', '.join(names)}?", abort=True)
        done = dataclasses.asdict(purge(app, names))
    if as_json:
        print_json(done)
        return
    removed, cancelled = counted(done["messages"], "message"), counted(done["records"], "task")
    click.echo(f"{removed} removed, {cancelled} cancelled")
