"""The commands that do what passes do: a pass now, and giving everything back."""

from __future__ import annotations

import dataclasses

import click
from celery.bin.base import CeleryCommand

from celery_reliable.app import reliable_of
from celery_reliable.operations.audit import somebody
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.printing import print_json
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.uninstall import release

__all__ = ["release_command", "sweep"]


@click.command("sweep", cls=CeleryCommand)
@as_json_option
@click.pass_context
def sweep(ctx: click.Context, as_json: bool) -> None:
    """Run a pass of the sweeper now, unless one has just finished, and print its report."""
    with errors_told(ctx):
        app = app_of(ctx)
        with Desk(app, patience_seconds=PATIENCE_SECONDS) as desk:
            report = desk.sweep(somebody())
        interval_seconds = reliable_of(app).config.sweep_seconds
    if as_json:
        print_json({"ran": report is not None, "report": report.as_dict() if report else None})
    elif report is None:
        click.echo(
            f"A pass runs, or has finished within the last {interval_seconds:g} seconds: none was "
            "needed."
        )
    else:
        for name, value in report.as_dict().items():
            click.echo(f"{name.replace('_', ' ')}: {value}")


@click.command("release", cls=CeleryCommand)
@as_json_option
@click.pass_context
def release_command(ctx: click.Context, as_json: bool) -> None:
    """Give back what only workers with the package can see: before it is uninstalled.

    Messages of stopped workers return to their queues, and parked tasks are sent, their ETA intact.
    What names workers goes to the queue that it would have without that.
    """
    with errors_told(ctx):
        done = dataclasses.asdict(release(app_of(ctx)))
    if as_json:
        print_json(done)
        return
    for name, value in done.items():
        click.echo(f"{name}: {value}")
