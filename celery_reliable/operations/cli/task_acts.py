"""The commands that end tasks that live, or say which workers may run them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.audit import somebody
from celery_reliable.operations.cli.calling import as_json_option, desk_of
from celery_reliable.operations.cli.printing import counted, print_json
from celery_reliable.operations.cli.progress import Progress, interruptible, repeated
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.task_acts import CannotMove
from celery_reliable.operations.views import IfRunning, Moved, Revoked
from celery_reliable.operations.words import printable

__all__ = ["move", "revoke", "stop"]

_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say what would become of them.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command("revoke", cls=CeleryCommand)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--if-running",
    type=click.Choice([one.value for one in IfRunning]),
    default=IfRunning.STOP.value,
    show_default=True,
    help="What runs is stopped (SIGTERM), killed (SIGKILL), or may finish.",
)
@_DRY_RUN
@_YES
@as_json_option
@click.pass_context
def revoke(ctx: click.Context, /, task_ids: tuple[str, ...], if_running: str, **how: bool) -> None:
    """End tasks that live, for good: queued, parked or running.

    Their result is REVOKED.  Dead letters are discarded instead (`dead-letters discard`).
    """
    _revoke(ctx, task_ids, IfRunning(if_running), **how)


@click.command("stop", cls=CeleryCommand)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@_DRY_RUN
@_YES
@as_json_option
@click.pass_context
def stop(ctx: click.Context, /, task_ids: tuple[str, ...], **how: bool) -> None:
    """End tasks at once, wherever they run, for good: `revoke --if-running kill`."""
    _revoke(ctx, task_ids, IfRunning.KILL, **how)


def _revoke(
    ctx: click.Context,
    task_ids: tuple[str, ...],
    how: IfRunning,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    with desk_of(ctx) as desk:
        if dry_run or not yes:
            with Progress("looked at", len(set(task_ids))) as progress:
                meant = desk.revocations.revoke(
                    task_ids, by=somebody(), if_running=how, dry_run=True, progress=progress.reach
                )
            if dry_run:
                _told_revoked(desk, meant, as_json)
                return
            if not meant.done:
                # What is published in this moment was not asked about.
                _told_revoked(desk, replace(meant, is_dry_run=False), as_json)
                return
            runs = f" ({len(meant.running)} running: {how.value})" if meant.running else ""
            question = f"Revoke {counted(meant.done, 'task')}{runs} for good?"
            click.confirm(question, abort=True, err=True)
        progress = Progress("revoked", len(set(task_ids)))
        with interruptible(lambda: _to_go_on(progress, "revoked")), progress:
            done = desk.revocations.revoke(
                task_ids, by=somebody(), if_running=how, progress=progress.reach
            )
        _told_revoked(desk, done, as_json)


@click.command("move", cls=CeleryCommand)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--workers", multiple=True, help="Only workers of these names, such as 'gpu-*'.")
@click.option("--anywhere", is_flag=True, help="Any worker that consumes the task's own queue.")
@click.option("--prefer", multiple=True, help="Workers that are to get it first.")
@_DRY_RUN
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
    with desk_of(ctx) as desk:
        # Whether an attempt has succeeded is known by the backend of its task.
        desk.app.loader.import_default_modules()
        progress = Progress("looked at" if dry_run else "moved", len(set(task_ids)))
        try:
            with interruptible(lambda: _to_go_on(progress, "moved")), progress:
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
        _told_moved(desk, found, as_json)


def _to_go_on(progress: Progress, verb: str) -> str:
    return f"Interrupted: {progress.line}. What was {verb} stays so. To go on:\n  {repeated()}"


def _told_revoked(desk: Desk, found: Revoked, as_json: bool) -> None:
    runs = "to its end" if found.if_running is IfRunning.FINISH else "and is to stop"
    abouts = (
        (f"runs {runs}", found.running),
        ("is a dead letter: discard it", found.dead),
        ("replaced itself by a canvas: revoke its members", found.replaced),
    )
    _told(desk, found, "revoked", abouts, is_wrong=bool(found.failed), as_json=as_json)


def _told_moved(desk: Desk, found: Moved, as_json: bool) -> None:
    abouts = (
        ("runs elsewhere, and is to stop there", found.stopped),
        ("runs there already", found.stays),
        ("is a dead letter, or replaced itself by a canvas", found.refused),
    )
    _told(desk, found, "moved", abouts, is_wrong=bool(found.refused), as_json=as_json)


def _told(
    desk: Desk,
    found: Moved | Revoked,
    verb: str,
    abouts: Sequence[tuple[str, Iterable[str]]],
    *,
    is_wrong: bool,
    as_json: bool,
) -> None:
    """Print what became of each task; exit with 1 if it could not be done, or to none."""
    if as_json:
        print_json(found)
    else:
        would = "would be " if found.is_dry_run else ""
        click.echo(f"{counted(found.done, 'task')} {would}{verb}")
        for about, ids in abouts:
            for task_id in ids:
                click.echo(f"{printable(task_id)}: {about}")
        for task_id in found.gone:
            click.echo(printable(f"{task_id}: {desk.tasks.get(task_id).why.sentence}"))
    if is_wrong or not found.done:
        sys.exit(1)
