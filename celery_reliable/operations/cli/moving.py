"""The command that says which workers may run tasks that live."""

from __future__ import annotations

import sys

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.audit import somebody
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.printing import counted, print_json
from celery_reliable.operations.cli.progress import Progress, interruptible, repeated
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.moves import CannotMove, Moved
from celery_reliable.operations.tables import printable

__all__ = ["move"]


@click.command("move", cls=CeleryCommand)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--workers", multiple=True, help="Only workers of these names, such as 'gpu-*'.")
@click.option("--anywhere", is_flag=True, help="Any worker that consumes the task's own queue.")
@click.option("--prefer", multiple=True, help="Workers that are to get it first.")
@click.option("--dry-run", is_flag=True, help="Only say what would become of them.")
@as_json_option
@click.pass_context
def move(
    ctx: click.Context,
    task_ids: tuple[str, ...],
    workers: tuple[str, ...],
    anywhere: bool,
    prefer: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Say which workers may run tasks that live: queued, parked or running.

    What runs on a worker that may not run it is stopped there, and runs elsewhere; it is no loss.
    """
    if bool(workers) == anywhere:
        raise click.UsageError("Say --workers, or --anywhere.")
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        # Whether an attempt has succeeded is known by the backend of its task.
        desk.app.loader.import_default_modules()
        progress = Progress("looked at" if dry_run else "moved", len(set(task_ids)))
        try:
            with interruptible(lambda: _to_go_on(progress)), progress:
                found = desk.moves.move(
                    task_ids,
                    workers,
                    by=somebody(),
                    prefer=prefer,
                    dry_run=dry_run,
                    progress=progress.reach,
                )
        except CannotMove as exc:
            raise click.UsageError(str(exc)) from None
        _told(desk, found, as_json)


def _to_go_on(progress: Progress) -> str:
    return f"Interrupted: {progress.line}. What was moved stays so. To go on:\n  {repeated()}"


def _told(desk: Desk, found: Moved, as_json: bool) -> None:
    if as_json:
        print_json(found.as_dict())
    else:
        verb = "would be moved" if found.is_dry_run else "moved"
        click.echo(f"{counted(found.done, 'task')} {verb}")
        for about, ids in (
            ("runs elsewhere, and is to stop there", found.stopped),
            ("runs there already", found.stays),
            ("is a dead letter, or replaced itself by a canvas", found.refused),
        ):
            for task_id in ids:
                click.echo(f"{printable(task_id)}: {about}")
        for task_id in found.gone:
            click.echo(printable(f"{task_id}: {desk.tasks.get(task_id).why.sentence}"))
    if found.refused or not found.done:
        sys.exit(1)
