"""`reliable drill`: workers of this app are killed, to see what comes of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.audit import somebody
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.choosing import Duration
from celery_reliable.operations.cli.printing import print_json
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.drills import KINDS, Drill, DrillReport
from celery_reliable.operations.tables import printable

__all__ = ["drill"]

_COLUMNS = (
    ("drill", 16), ("recovery", 10), ("tasks", 7), ("runs", 6), ("lost", 6), ("doubled", 9),
    ("zombies", 9), ("dead letters", 12),
)  # fmt: skip


@click.command("drill", cls=CeleryCommand)
@click.argument("kinds", metavar="DRILL...", nargs=-1, required=True, type=click.Choice(KINDS))
@click.option("--yes-this-is-staging", is_flag=True, help="Without it nothing is done.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=Duration(1),
    default=120.0,
    show_default=True,
    help="How long each thing is waited for.",
)
@click.option(
    "--restart-command",
    default="",
    help="For broker-restart: a shell command that restarts the broker, and ends when it is up.",
)
@click.option(
    "--logs",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Leave in this directory what the tasks of each drill did, as JSON lines.",
)
@as_json_option
@click.pass_context
def drill(
    ctx: click.Context,
    kinds: tuple[str, ...],
    yes_this_is_staging: bool,
    timeout_seconds: float,
    restart_command: str,
    logs: Path | None,
    as_json: bool,
) -> None:
    """Kill, freeze or poison workers of this app, and say what was lost or doubled.

    The workers are the drill's own: it starts them on this machine, on a queue of its own, with
    tasks of its own.  Nobody else's worker, task or message is touched; but broker-restart is
    felt by all who use that broker.

    Exit codes: 0, nothing was lost or doubled; 1, something was, or a drill came to no end; 2, the
    command was not given as it should be; 3, the ledger cannot be reached.
    """
    if not yes_this_is_staging:
        raise click.UsageError("Drills are for a staging system: say --yes-this-is-staging.")
    if "broker-restart" in kinds and not restart_command:
        raise click.UsageError("broker-restart needs a --restart-command.")
    reports = []
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        drills = Drill(
            desk,
            _app_path(),
            by=somebody(),
            timeout_seconds=timeout_seconds,
            restart_command=restart_command,
        )
        for kind in kinds:
            log = logs and logs / f"{kind}.jsonl"
            reports.append(drills.run(kind, log=log))
            if not as_json:
                _print(reports[-1], is_first=len(reports) == 1)
    if as_json:
        print_json({"items": [report.as_dict() for report in reports]})
    if not all(report.is_well for report in reports):
        sys.exit(1)


def _app_path() -> str:
    """Return what `celery` was given as its app: other processes have to find it, too."""
    words = sys.argv[1:]
    for number, word in enumerate(words):
        if word in ("-A", "--app") and number + 1 < len(words):
            return words[number + 1]
        if word.startswith("--app="):
            return word.removeprefix("--app=")
        if word.startswith("-A"):
            return word.removeprefix("-A")
    if path := os.environ.get("APP"):
        return path
    raise click.UsageError("Workers have to find the app: give it as celery -A.")


def _print(report: DrillReport, *, is_first: bool) -> None:
    if is_first:
        click.echo("".join(name.ljust(width) for name, width in _COLUMNS).rstrip())
    seconds = report.recovery_seconds
    cells = (
        report.kind,
        "" if seconds is None else f"{seconds:.1f} s",
        report.published,
        report.runs,
        report.lost,
        report.doubled,
        report.zombies,
        report.dead_letters,
    )
    widths = (width for _, width in _COLUMNS)
    told = "".join(str(c).ljust(w) for c, w in zip(cells, widths, strict=True))
    click.echo(told.rstrip())
    if report.problem:
        click.echo(printable(report.problem, keeps="\n"), err=True)
