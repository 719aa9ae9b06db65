"""The command that compares what a live server does with the ledger's model."""

from __future__ import annotations

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.choosing import Duration
from celery_reliable.operations.cli.printing import print_json
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.tables import printable

__all__ = ["verify"]


@click.command("verify", cls=CeleryCommand)
@click.option(
    "--seconds",
    type=Duration(0.1, 3600),
    default=60.0,
    show_default=True,
    help="For how long.",
)
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="End after so many calls.",
)
@as_json_option
@click.pass_context
def verify(ctx: click.Context, seconds: float, most: int, as_json: bool) -> None:
    """Watch the ledger's server, and check that each call of a script does what it should.

    Needs the right to MONITOR, which slows the server down meanwhile. Arguments of tasks are not
    kept. Exit code 1 if a call is not as the model says, or is of a script that it does not know.
    """
    # Nothing else imports the model.
    from celery_reliable.operations.verifying import verify as look

    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        found = look(desk.ledger, seconds=seconds, most_calls=most)
    is_right = not found.problem and not found.uncovered
    if as_json:
        print_json(
            {
                "is_right": is_right,
                "judged": dict(found.judged),
                "unjudged": dict(found.unjudged),
                "uncovered": dict(found.uncovered),
                "problem": found.problem,
                "is_cut_short": found.is_cut_short,
            }
        )
    else:
        click.echo(f"{found.judged.total()} calls are as the model says.")
        click.echo(
            f"{found.unjudged.total()} were not checked, as they concern what is older than this "
            "look, or passes."
        )
        for name, count in sorted(found.uncovered.items()):
            click.echo(f"{count} calls of a script that the model does not know: {name}")
        if found.problem:
            click.echo(printable(found.problem, keeps="\n"))
    if not is_right:
        ctx.exit(1)
