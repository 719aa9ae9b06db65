"""The commands that monitor: `reliable status`, is it healthy, in one screen; for people, for
programs and for probes; `reliable doctor`, what is wrong with the set-up, before it shows; and
`reliable metrics`, which serves metrics to Prometheus.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.clock import at, span
from celery_reliable.findings import Finding, counted
from celery_reliable.operations.cli.command import Call
from celery_reliable.operations.cli.layouts import Table, print_items
from celery_reliable.operations.cli.terminal import (
    app_of,
    console_of,
    errors_told,
    print_json,
    print_pairs,
)
from celery_reliable.operations.messages import printable
from celery_reliable.operations.metrics import registry_of
from celery_reliable.operations.views import Status

__all__ = ["MORE", "doctor", "metrics", "status"]

_FOUND, _AWAY = 1, 3
#: What of a status is listed, and how each of a kind looks.
_TABLES = {
    Table(("name", "waiting", "oldest", "consumed_by")): "queues",
    Table(("nodename", "condition", "busy", "slots", "begun_at")): "workers",
}


def status(call: Call) -> None:
    """Print the status, or what is wrong alone."""
    found = call.run()
    if call.more["check"]:
        _print_findings(call, found.findings)
        call.ctx.exit(_code_of(found.findings))
    if call.is_json:
        print_json(found)
    else:
        _print(call, found)


def _code_of(findings: Sequence[Finding]) -> int:
    """Return the exit code: what is only for information is nothing wrong."""
    return _FOUND if any(one.severity != "info" for one in findings) else 0


def _print_findings(call: Call, findings: Sequence[Finding]) -> None:
    if call.is_json:
        print_json({"findings": findings})
        return
    for one in findings:
        click.echo(f"{one.severity}: {one.code} {one.name}")
        told = {"Seen": one.message, "If ignored": one.ignored, "To mend": one.hint}
        for label, text in told.items():
            click.echo(printable(f"  {label + ':':<12}{text}"))
    # What is only for information is nothing wrong, and no health either.
    wrong = sum(one.severity != "info" for one in findings)
    infos = len(findings) - wrong
    said = [counted(wrong, "finding")] if wrong else []
    said += [f"{infos} for information"] if infos else []
    click.echo(f"{', '.join(said) or 'Nothing is wrong'}.")


def _print(call: Call, found: Status) -> None:
    for one in found.orders:
        click.echo(printable(f"{one.kind.value}: {one.sentence}"))
    print_pairs(console_of(call.ctx), _pairs(found))
    click.echo()
    _print_findings(call, found.findings)
    click.echo()
    for table, items in _TABLES.items():
        print_items(call, getattr(found, items), table)


def _pairs(found: Status) -> list[tuple[str, str]]:
    about = "" if found.is_exact else "about "
    waits = ", ".join(f"{about}{found.tasks[name]} {name}" for name in ("queued", "waiting"))
    owed = f", {found.tasks['owed']} owed" if found.tasks["owed"] else ""
    dead = f"{found.tasks['dead']} dead" + _in_brackets(found.dead_by_reason)
    alive = ", ".join(f"{count} {state}" for state, count in found.workers_by_state.items())
    saturation = "" if found.saturation is None else f", saturation {found.saturation:g}"
    last = found.last_pass.seconds_ago
    pairs = [
        ("at", at(found.at)),
        ("app", f"{found.app or '(no name)'}, namespace {found.namespace}"),
        ("tasks", f"{found.tasks['running']} running, {waits}{owed}, {dead}"),
        ("workers", f"{alive}; {found.slots} slots{saturation}"),
        ("last pass", "never" if last is None else f"{span(last)} ago"),
        ("ledger", f"{found.ledger.url} (Redis {found.ledger.version or 'of some release'})"),
    ]
    # What waits in the ledger and in no queue.
    held = [
        ("held back", f"{about}{sum(tasks.values())} by {kind}{_in_brackets(tasks)}")
        for kind, tasks in found.held_back.items()
    ]
    if found.waiting_for_worker:
        named = "; ".join(one.sentence for one in found.nobody_alive)
        held.append(("named", f"{found.waiting_for_worker} waiting for workers: {named}"))
    pairs[3:3] = held
    if found.broker_problem:
        pairs.append(("broker", found.broker_problem))
    return pairs


def _in_brackets(counts: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{n} {name}' for name, n in counts.items())})" if counts else ""


def doctor(call: Call) -> None:
    """Print what the doctor finds."""
    with errors_told(call.ctx):
        # It imports the app's modules itself: that they cannot be imported is a finding.
        found = call.operation.run(call.ctx.obj.app, call.given)
    _print_findings(call, found.findings)
    call.ctx.exit(_AWAY if found.is_ledger_away else _code_of(found.findings))


#: What these two commands are besides their operations.
MORE: dict[str, dict[str, Any]] = {
    "status": {
        "carry_out": status,
        "options": (
            click.Option(["--check"], is_flag=True, help="Print only what is wrong; for probes."),
        ),
    },
    "doctor": {"carry_out": doctor},
}


@click.command("metrics", cls=CeleryCommand)
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=9809,
    show_default=True,
    help="The port; 0 takes any free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; it shows the names of tasks and queues.",
)
@click.pass_context
def metrics(ctx: click.Context, port: int, host: str) -> None:
    """Serve the metrics of the fleet to Prometheus, until Ctrl-C."""
    with errors_told(ctx):
        registry = registry_of(app_of(ctx))
    from prometheus_client import start_http_server

    try:
        server, _ = start_http_server(port, addr=host, registry=registry)
    except OSError as exc:
        raise click.ClickException(f"Cannot listen on {host}:{port}: {exc.strerror}.") from exc
    click.echo(f"Serving metrics on http://{host}:{server.server_port}/metrics")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
