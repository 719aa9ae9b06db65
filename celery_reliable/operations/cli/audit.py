"""The command that tells what operators did."""

from __future__ import annotations

import json

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.printing import console_of, counted, print_json, to_second
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.tables import print_list

__all__ = ["audit"]


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
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        views = [entry.as_dict() for entry in desk.audit(limit)]
    if console is None:
        print_json({"items": views})
        return
    if views:
        print_list(
            console,
            ("act", "at (UTC)", "what", "done"),
            [
                (
                    one["run"],
                    to_second(one["at"]),
                    f"{one['act']}, {one['phase']}",
                    str(one["done"]),
                )
                for one in views
            ],
            [[f"{one['by']}: {json.dumps(one['about'])}", one["problem"]] for one in views],
        )
    click.echo(counted(len(views), "entry").replace("entrys", "entries"))
