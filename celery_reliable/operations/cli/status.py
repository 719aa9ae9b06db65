"""`reliable status`: is it healthy, in one screen; for people, for programs and for probes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.clock import span
from celery_reliable.exceptions import ReliableError
from celery_reliable.findings import Finding, Limits, check
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    errors_told,
)
from celery_reliable.operations.cli.choosing import AGE, Duration
from celery_reliable.operations.cli.printing import console_of, print_json
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.order_words import in_words
from celery_reliable.operations.status import Status
from celery_reliable.operations.tables import printable
from celery_reliable.operations.throughput import RATES
from celery_reliable.operations.times import at

__all__ = ["status"]

_FOUND = 1


@click.command("status", cls=CeleryCommand)
@click.option("--check", "is_check", is_flag=True, help="Only what is wrong; for probes.")
@click.option(
    "--max-age",
    "oldest_seconds",
    type=AGE,
    default=Limits.oldest_seconds,
    show_default=True,
    help="For so long a task may wait in its queue: 90, 15m, 2h.",
)
@click.option(
    "--recent",
    "recent_seconds",
    type=AGE,
    default=Limits.recent_seconds,
    show_default=True,
    help="So long ago a death or a burial is still told: 90, 15m, 2h.",
)
@click.option(
    "--max-run",
    "run_seconds",
    type=AGE,
    default=Limits.run_seconds,
    show_default=True,
    help="For so long an attempt may run: 90, 15m, 2h.",
)
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=Duration(0.2),
    default=2.0,
    show_default=True,
    help="Time between two looks with --watch.",
)
@as_json_option
@click.pass_context
def status(
    ctx: click.Context,
    is_check: bool,
    oldest_seconds: float,
    recent_seconds: float,
    run_seconds: float,
    watch: bool,
    interval: float,
    as_json: bool,
) -> None:
    """Show what waits, what runs where, who sweeps, and what is wrong.

    Exit codes: 0, and with --check nothing is wrong; 1, with --check: something is; 2, the command
    was not given as it should be; 3, the ledger cannot be reached.
    """
    if watch and (as_json or is_check):
        raise click.UsageError("--watch is for people: without --json and --check.")
    limits = Limits(
        oldest_seconds=oldest_seconds, recent_seconds=recent_seconds, run_seconds=run_seconds
    )
    console = None if as_json or is_check else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        if watch:
            _watch(console, desk, limits, interval)
            return
        found = desk.status(limits.recent_seconds)
    findings = check(found, limits)
    if is_check:
        _print_findings(findings, as_json=as_json)
        ctx.exit(_FOUND if any(one.level != "info" for one in findings) else 0)
    if console is None:
        print_json({**found.as_dict(), "findings": [one.as_dict() for one in findings]})
    else:
        console.print(_drawn(found, findings))


def _print_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        print_json({"findings": [one.as_dict() for one in findings]})
        return
    for one in findings:
        click.echo(f"{one.level}: {one.code} {one.name}")
        click.echo(printable(f"  {one.message}"))
        click.echo(printable(f"  {one.hint}"))
    if not findings:
        click.echo("Nothing is wrong.")


def _watch(console: Any, desk: Desk, limits: Limits, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while True:
                try:
                    found = desk.status(limits.recent_seconds)
                    drawn = _drawn(found, check(found, limits))
                except ReliableError as exc:
                    # It may come back.
                    drawn = Text(printable(str(exc)))
                live.update(drawn, refresh=True)
                time.sleep(interval)
    except KeyboardInterrupt:
        return


def _drawn(found: Status, findings: Sequence[Finding]) -> Any:
    """Return the screen."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for view in found.orders:
        # First of all: it explains the rest.
        parts.append(Text(printable(f"{view.order.kind.value}: {in_words(view.order)}"), "bold"))
    parts += [_pairs(found), Text()]
    # A terminal that is too low cuts the end off.
    if not findings:
        parts.append(Text("Nothing is wrong."))
    for finding in findings:
        parts.append(Text(f"{finding.level}: {finding.code} {finding.name}", "bold"))
        parts.append(Text(printable(f"{finding.message} {finding.hint}")))
    parts.append(Text())
    parts.append(
        _table(
            ("queue", "waiting", "oldest", "consumed by"),
            [
                (
                    one.name,
                    one.waiting,
                    "" if one.oldest_seconds is None else span(one.oldest_seconds),
                    ", ".join(one.workers)
                    or ("" if one.consumers is None else f"{one.consumers} consumers"),
                )
                for one in found.queues
            ],
        )
    )
    if found.workers:
        parts.append(Text())
        parts.append(
            _table(
                ("worker", "state", "runs", "of", "longest", "last began"),
                [
                    (
                        one.nodename,
                        one.condition,
                        str(max(one.running or 0, one.claims)),
                        "" if one.slots is None else str(one.slots),
                        _since(found, one.runs[0].since_ms if one.runs else 0),
                        _since(found, one.begun_ms),
                    )
                    for one in found.workers
                ],
            )
        )
    windows = found.throughput.as_list()
    if any(one["processed"] or one["lost"] for one in windows):
        parts.append(Text())
        parts.append(
            _table(
                ("a minute", "last 10 min", "last hour", "last day"),
                [(name, *(f"{one[name]:g}" for one in windows)) for name in RATES],
            )
        )
    return Group(*parts)


def _pairs(found: Status) -> Any:
    from rich.table import Table
    from rich.text import Text

    about = "" if found.is_exact else "about "
    waits = ", ".join(f"{about}{found.tasks[name]} {name}" for name in ("queued", "parked"))
    more = [f"{found.tasks[name]} {name}" for name in ("waiting", "owed") if found.tasks[name]]
    dead = f"{found.tasks['dead']} dead" + _in_brackets(found.dead_by_reason)
    alive = ", ".join(f"{count} {state}" for state, count in found.workers_by_state.items())
    saturation = "" if found.saturation is None else f", saturation {found.saturation:g}"
    last = found.last_pass.seconds_ago
    pairs = [
        ("at", at(found.now_ms)),
        ("app", f"{found.app or '(no name)'}, namespace {found.namespace}"),
        ("tasks", ", ".join([f"{found.tasks['running']} running", waits, *more, dead])),
        ("workers", f"{alive}; {found.slots} slots{saturation}"),
        ("last pass", "never" if last is None else f"{span(last)} ago"),
        ("ledger", _server(found)),
    ]
    pairs[3:3] = _waits(found)
    if found.broker_problem:
        pairs.append(("broker", found.broker_problem))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name, "bold"), Text(printable(value)))
    return table


def _waits(found: Status) -> list[tuple[str, str]]:
    """What waits in the ledger and in no queue."""
    waits, pairs = found.waits, []
    limited = [f"{count} {name}" for name, count in waits.limited.items() if count]
    if limited:
        pairs.append(("limited", f"waiting for their moment: {', '.join(limited)}"))
    taken = [f"{one.taken} of {one.places} {one.task}" for one in waits.places if one.taken]
    if taken:
        pairs.append(("places", f"taken in the whole fleet: {', '.join(taken)}"))
    about = "" if found.is_exact else "about "
    in_line = [f"{about}{count} {name}" for name, count in waits.in_line.items() if count]
    if in_line:
        pairs.append(("in line", f"waiting for a place: {', '.join(in_line)}"))
    if waits.for_workers:
        named = "; ".join(one.sentence for one in waits.named)
        pairs.append(("named", f"{waits.for_workers} waiting for workers: {named}"))
    return pairs


def _server(found: Status) -> str:
    server, facts = found.server, found.server.facts
    said = [server.url, f"Redis {facts.version}" if facts.version else ""]
    if server.used_bytes is not None:
        of = f" of {_size(facts.maxmemory)}" if facts.maxmemory else ", no limit"
        said.append(f"{_size(server.used_bytes)}{of}")
    said.append(facts.maxmemory_policy or "")
    if facts.appendonly is not None:
        said.append(f"AOF {facts.appendfsync or 'on'}" if facts.appendonly else "no AOF")
    return ", ".join(filter(None, said))


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.1f} MiB"


def _since(found: Status, ms: int) -> str:
    return span((found.now_ms - ms) / 1000) if ms else ""


def _in_brackets(counts: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{n} {name}' for name, n in counts.items())})" if counts else ""


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*[Text(printable(cell)) for cell in row])
    return table
