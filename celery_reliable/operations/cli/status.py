"""`reliable status`: is it healthy, in one screen; for people, for programs and for probes; and
`reliable doctor`: what is wrong with the set-up, before it shows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from celery_reliable.clock import span
from celery_reliable.doctor import Examination
from celery_reliable.exceptions import ReliableError
from celery_reliable.findings import Finding
from celery_reliable.operations.cli.calling import errors_told
from celery_reliable.operations.cli.command import Call, Duration
from celery_reliable.operations.cli.printing import console_of, print_json
from celery_reliable.operations.status import RATES
from celery_reliable.operations.views import FullStatus
from celery_reliable.operations.words import at, counted, printable

__all__ = ["CHECK", "EXIT_CODES", "FAIL_LEVEL", "doctor", "status"]

_FOUND, _AWAY = 1, 3
#: What counts with each --fail-level.
_FAILING = {
    "error": ("error",),
    "warning": ("error", "warning"),
    "info": ("error", "warning", "info"),
    "never": (),
}
CHECK = (
    click.Option(["--check"], is_flag=True, help="Only what is wrong; for probes."),
    click.Option(["--watch"], is_flag=True, help="Show it again and again, until Ctrl-C."),
    click.Option(
        ["--interval"],
        type=Duration(0.2),
        default=2.0,
        show_default=True,
        help="Time between two looks with --watch.",
    ),
)
FAIL_LEVEL = (
    click.Option(
        ["--fail-level"],
        type=click.Choice(list(_FAILING)),
        default="warning",
        show_default=True,
        help="The exit code is 1 for findings of this level, or worse.",
    ),
)
EXIT_CODES = {
    "status": "Exit codes: 0, and with --check nothing is wrong; 1, with --check: something is; "
    "2, the command was not given as it should be; 3, the ledger cannot be reached.",
    "doctor": "Exit codes: 0, nothing is wrong; 1, something is wrong (see --fail-level) or could "
    "not be checked; 2, usage error; 3, the ledger cannot be reached.",
}


def status(call: Call) -> None:
    """Print the status, once or again and again, or what is wrong alone."""
    is_check = call.more["check"]
    if call.more["watch"]:
        if call.is_json or is_check:
            raise click.UsageError("--watch is for people: without --json and --check.")
        _watch(call)
        return
    console = None if call.is_json or is_check else console_of(call.ctx)
    found = call.run()
    if is_check:
        _print_findings(found.findings, is_json=call.is_json)
        call.ctx.exit(_FOUND if any(one.severity != "info" for one in found.findings) else 0)
    if console is None:
        print_json(found)
    else:
        console.print(_drawn(found))


def _print_findings(findings: Sequence[Finding], *, is_json: bool) -> None:
    if is_json:
        print_json({"findings": findings})
        return
    for one in findings:
        click.echo(f"{one.severity}: {one.code} {one.name}")
        click.echo(printable(f"  {one.message}"))
        click.echo(printable(f"  {one.hint}"))
    if not findings:
        click.echo("Nothing is wrong.")


def _watch(call: Call) -> None:
    from rich.live import Live
    from rich.text import Text

    console = console_of(call.ctx)
    try:
        with call.opened() as desk, Live(console=console, auto_refresh=False) as live:
            while True:
                try:
                    drawn = _drawn(call.operation.run(desk, call.given))
                except ReliableError as exc:
                    # It may come back.
                    drawn = Text(printable(str(exc)))
                live.update(drawn, refresh=True)
                time.sleep(call.more["interval"])
    except KeyboardInterrupt:
        return


def _drawn(found: FullStatus) -> Any:
    """Return the screen."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for order in found.orders:
        # First of all: it explains the rest.
        parts.append(Text(printable(f"{order.kind.value}: {order.sentence}"), "bold"))
    parts += [_pairs(found), Text()]
    # A terminal that is too low cuts the end off.
    if not found.findings:
        parts.append(Text("Nothing is wrong."))
    for finding in found.findings:
        parts.append(Text(f"{finding.severity}: {finding.code} {finding.name}", "bold"))
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
                        str(one.busy),
                        "" if one.slots is None else str(one.slots),
                        _since(found, one.runs[0].since if one.runs else None),
                        _since(found, one.begun_at),
                    )
                    for one in found.workers
                ],
            )
        )
    windows = found.throughput
    if any(one.processed or one.lost for one in windows):
        parts.append(Text())
        parts.append(
            _table(
                ("a minute", "last 10 min", "last hour", "last day"),
                [(name, *(f"{getattr(one, name):g}" for one in windows)) for name in RATES],
            )
        )
    return Group(*parts)


def _pairs(found: FullStatus) -> Any:
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
        ("at", at(found.at)),
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


def _waits(found: FullStatus) -> list[tuple[str, str]]:
    """What waits in the ledger and in no queue."""
    pairs = []
    limited = [f"{count} {name}" for name, count in found.limited.items() if count]
    if limited:
        pairs.append(("limited", f"waiting for their moment: {', '.join(limited)}"))
    taken = [f"{one.taken} of {one.places} {one.task}" for one in found.places if one.taken]
    if taken:
        pairs.append(("places", f"taken in the whole fleet: {', '.join(taken)}"))
    about = "" if found.is_exact else "about "
    in_line = [f"{about}{count} {name}" for name, count in found.in_line.items() if count]
    if in_line:
        pairs.append(("in line", f"waiting for a place: {', '.join(in_line)}"))
    if found.waiting_for_worker:
        named = "; ".join(one.sentence for one in found.nobody_alive)
        pairs.append(("named", f"{found.waiting_for_worker} waiting for workers: {named}"))
    return pairs


def _server(found: FullStatus) -> str:
    server = found.ledger
    said = [server.url, f"Redis {server.version}" if server.version else ""]
    if server.used_bytes is not None:
        limit = server.maxmemory_bytes
        said.append(f"{_size(server.used_bytes)}{f' of {_size(limit)}' if limit else ', no limit'}")
    said.append(server.maxmemory_policy or "")
    if server.appendonly is not None:
        said.append(f"AOF {server.appendfsync or 'on'}" if server.appendonly else "no AOF")
    return ", ".join(filter(None, said))


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.1f} MiB"


def _since(found: FullStatus, when: datetime | None) -> str:
    return span((found.at - when).total_seconds()) if when else ""


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


def doctor(call: Call) -> None:
    """Print what the doctor finds."""
    with errors_told(call.ctx):
        # It imports the app's modules itself: that they cannot be imported is a finding.
        found = call.operation.run(call.ctx.obj.app, call.given)
    if call.is_json:
        print_json({"findings": found.findings})
    else:
        _print_examined(found)
    failing = _FAILING[call.more["fail_level"]]
    if found.is_ledger_away and failing:
        call.ctx.exit(_AWAY)
    call.ctx.exit(_FOUND if any(one.severity in failing for one in found.findings) else 0)


def _print_examined(found: Examination) -> None:
    for one in found.findings:
        click.echo(f"{one.severity}: {one.code} {one.name}")
        for label, text in (
            ("Seen", one.message),
            ("If ignored", one.ignored),
            ("To mend", one.hint),
        ):
            click.echo(printable(f"  {label + ':':<12}{text}"))
    wrong = [one for one in found.findings if one.severity != "info"]
    told = f"{counted(len(wrong), 'finding')}" if wrong else "Nothing is wrong"
    infos = len(found.findings) - len(wrong)
    click.echo(f"{told}, {infos} for information." if infos else f"{told}.")
