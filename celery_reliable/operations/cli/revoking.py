"""The command that ends tasks that live."""

from __future__ import annotations

import sys
from dataclasses import replace

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
from celery_reliable.operations.revocations import IfRunning, Revoked
from celery_reliable.operations.tables import printable

__all__ = ["revoke", "stop"]


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
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        if dry_run or not yes:
            with Progress("looked at", len(set(task_ids))) as progress:
                meant = desk.revocations.revoke(
                    task_ids, by=somebody(), if_running=how, dry_run=True, progress=progress.reach
                )
            if dry_run:
                _told(desk, meant, "would be revoked", as_json)
                return
            if not meant.done:
                # What is published in this moment was not asked about.
                _told(desk, replace(meant, is_dry_run=False), "revoked", as_json)
                return
            runs = f" ({len(meant.running)} running: {how.value})" if meant.running else ""
            question = f"Revoke {counted(meant.done, 'task')}{runs} for good?"
            click.confirm(question, abort=True, err=True)
        progress = Progress("revoked", len(set(task_ids)))
        with interruptible(lambda: _to_go_on(progress)), progress:
            done = desk.revocations.revoke(
                task_ids, by=somebody(), if_running=how, progress=progress.reach
            )
        _told(desk, done, "revoked", as_json)


def _to_go_on(progress: Progress) -> str:
    return f"Interrupted: {progress.line}. What was revoked stays so. To go on:\n  {repeated()}"


def _told(desk: Desk, found: Revoked, verb: str, as_json: bool) -> None:
    if as_json:
        print_json(found.as_dict())
    else:
        click.echo(f"{counted(found.done, 'task')} {verb}")
        for about, ids in (
            ("runs and is to stop", () if found.if_running is IfRunning.FINISH else found.running),
            ("runs to its end", found.running if found.if_running is IfRunning.FINISH else ()),
            ("is a dead letter: discard it", found.dead),
            ("replaced itself by a canvas: revoke its members", found.replaced),
        ):
            for task_id in ids:
                click.echo(f"{printable(task_id)}: {about}")
        for task_id in found.gone:
            click.echo(printable(f"{task_id}: {desk.tasks.get(task_id).why.sentence}"))
    if found.failed or not found.done:
        sys.exit(1)
