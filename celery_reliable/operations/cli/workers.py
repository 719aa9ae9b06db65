"""The commands of workers."""

from __future__ import annotations

from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.app import reliable_of
from celery_reliable.ledger import Ledger
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.printing import console_of, counted, print_json
from celery_reliable.operations.tables import print_list, printable

__all__ = ["workers"]


@click.command("workers", cls=CeleryCommand)
@as_json_option
@click.pass_context
def workers(ctx: click.Context, as_json: bool) -> None:
    """List the workers that hold a lease, and how many tasks each of them runs."""
    console = None if as_json else console_of(ctx)
    with errors_told(ctx):
        ledger = reliable_of(app_of(ctx)).own_ledger(
            reply_timeout_seconds=5.0, patience_seconds=PATIENCE_SECONDS
        )
        try:
            rows = _worker_rows(ledger)
        finally:
            ledger.close()
    if console is None:
        print_json(rows)
        return
    if rows:
        print_list(
            console,
            ("worker", "state", "lease left", "runs", "witness"),
            [
                (
                    row["worker"],
                    row["state"],
                    f"{row['seconds_left']:.1f} s" if row["state"] == "alive" else "",
                    str(row["claims"]),
                    "on" if row["witness"] else "off",
                )
                for row in rows
            ],
            [""] * len(rows),
        )
    click.echo(counted(len(rows), "worker"))
    for reason in sorted({row["no_witness"] for row in rows if row["no_witness"]}):
        click.echo(
            f"Without a witness a death shows only when the lease has run out. {printable(reason)}"
        )


def _worker_rows(ledger: Ledger) -> list[dict[str, Any]]:
    now_ms = ledger.workers.time_ms()
    rows = []
    for lease in ledger.workers.leases():
        left_seconds = round((lease.until_ms - now_ms) / 1000, 3)
        # Lapsed is not yet dead: only the sweeper declares that.
        alive = "alive" if left_seconds > 0 else "lapsed"
        rows.append(
            {
                "worker": lease.worker,
                "state": "dead" if lease.is_dead else alive,
                "seconds_left": left_seconds,
                "claims": len(ledger.workers.claims(lease.worker)),
                "cause": lease.cause,
                "witness": lease.has_witness,
                "no_witness": lease.no_witness,
            }
        )
    return rows
