"""The command that shows a run: one task on several workers."""

from __future__ import annotations

import sys

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
from celery_reliable.operations.tables import print_list, printable

__all__ = ["run"]


@click.command("run", cls=CeleryCommand)
@click.argument("run_id", metavar="[ID]", default="")
@as_json_option
@click.pass_context
def run(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """Show a run (`task.run_on`): its members, which worker each has, and what is missing.

    Without an ID those are listed that are not over, the latest first.
    """
    if not run_id:
        _list(ctx, as_json)
        return
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        view = desk.runs.get(run_id)
    if view is None:
        click.echo(f"There is no run {printable(run_id)}, or none any more.", err=True)
        sys.exit(1)
    if as_json:
        print_json(view.as_dict())
        return
    console = console_of(ctx)
    console.print(printable(view.sentence))
    click.echo()
    print_list(
        console,
        ("member", "worker", "state", "result"),
        [(one.task_id, one.worker, one.state, one.result) for one in view.members],
        [[]] * len(view.members),
    )


def _list(ctx: click.Context, as_json: bool) -> None:
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        found = desk.runs.all()
    if console is None:
        print_json({"items": [one.as_dict() for one in found]})
        return
    if found:
        print_list(
            console,
            ("run", "since (UTC)", "missing"),
            [(one.run, to_second(one.as_dict()["begun_at"]), str(one.missing)) for one in found],
            [[one.sentence] for one in found],
        )
    click.echo(counted(len(found), "run"))
