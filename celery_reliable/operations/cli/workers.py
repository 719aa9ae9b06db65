"""The commands of workers."""

from __future__ import annotations

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
from celery_reliable.operations.tables import print_list, printable
from celery_reliable.operations.times import at
from celery_reliable.operations.workers import WorkerView

__all__ = ["workers"]

_MOST_NAMED = 20


@click.command("workers", cls=CeleryCommand)
@click.option("--long", "is_long", is_flag=True, help="Also what each holds, runs, since when.")
@as_json_option
@click.pass_context
def workers(ctx: click.Context, is_long: bool, as_json: bool) -> None:
    """List the workers that hold a lease, and how many tasks each of them runs."""
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        found = desk.workers.all(with_broker=is_long)
    if console is None:
        print_json({"items": [one.as_dict() for one in found]})
        return
    if found:
        print_list(
            console,
            ("worker", "state", "lease left", "runs", "witness"),
            [
                (
                    one.worker,
                    one.condition,
                    f"{one.seconds_left:.1f} s" if one.state == "alive" else "",
                    str(one.claims),
                    "on" if one.has_witness else "off",
                )
                for one in found
            ],
            [_about(one) if is_long else [] for one in found],
        )
    click.echo(counted(len(found), "worker"))
    for reason in sorted({one.no_witness for one in found if one.no_witness}):
        click.echo(
            f"Without a witness a death shows only when the lease has run out. {printable(reason)}"
        )


def _about(one: WorkerView) -> list[str]:
    said = [f"pid {one.pid}, {one.pool}" if one.pid else one.pool]
    if one.slots is not None:
        said.append(f"runs {one.running} of {one.slots}, consumes {', '.join(one.queues)}")
    if one.unacked is not None:
        said.append(f"was delivered {one.unacked} and has not acknowledged them")
    if one.state != "alive":
        said.append(f"{one.cause or one.state} for {span(-one.seconds_left)}")
    said += [
        f"{run.name}[{run.task_id}]" + (f" since {at(run.since_ms)}" if run.since_ms else "")
        for run in one.runs[:_MOST_NAMED]
    ]
    if one.suspect:
        said.append(f"{one.suspect} may have killed another worker: it runs alone of such")
    if one.opening:
        said.append(f"opens the message of {one.opening}, which came back from a dead worker")
    return said
