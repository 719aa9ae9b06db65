"""The commands of workers, queues, runs, passes and metrics."""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict

import click
from celery.bin.base import CeleryCommand

from celery_reliable.app import reliable_of
from celery_reliable.clock import span
from celery_reliable.operations.audit import somebody
from celery_reliable.operations.cli.calling import (
    PATIENCE_SECONDS,
    app_of,
    as_json_option,
    desk_of,
    errors_told,
)
from celery_reliable.operations.cli.printing import (
    console_of,
    counted,
    print_json,
    print_list,
    print_things,
    to_second,
)
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.metrics import registry_of
from celery_reliable.operations.queues import purge
from celery_reliable.operations.uninstall import release
from celery_reliable.operations.views import Worker
from celery_reliable.operations.views import as_json as plain
from celery_reliable.operations.words import at, printable

__all__ = [
    "metrics",
    "purge_command",
    "queues_command",
    "release_command",
    "run",
    "sweep",
    "workers",
]

_MOST_NAMED = 20


@click.command("workers", cls=CeleryCommand)
@click.option("--long", "is_long", is_flag=True, help="Also what each holds, runs, since when.")
@as_json_option
@click.pass_context
def workers(ctx: click.Context, is_long: bool, as_json: bool) -> None:
    """List the workers that hold a lease, and how many tasks each of them runs."""
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx) as desk:
        found = desk.workers.all(with_broker=is_long)
    print_things(
        console,
        found,
        "worker",
        ("worker", "state", "lease left", "runs", "witness"),
        lambda one: (
            one.worker,
            one.condition,
            f"{one.seconds_left:.1f} s" if one.state == "alive" else "",
            str(one.claims),
            "on" if one.witness else "off",
        ),
        lambda one: _about(one) if is_long else [],
    )
    if console is None:
        return
    for reason in sorted({one.no_witness for one in found if one.no_witness}):
        click.echo(
            f"Without a witness a death shows only when the lease has run out. {printable(reason)}"
        )


def _about(one: Worker) -> list[str]:
    said = [f"pid {one.pid}, {one.pool}" if one.pid else one.pool]
    if one.slots is not None:
        said.append(f"runs {one.running} of {one.slots}, consumes {', '.join(one.queues)}")
    if one.unacked is not None:
        said.append(f"was delivered {one.unacked} and has not acknowledged them")
    if one.state != "alive":
        said.append(f"{one.cause or one.state} for {span(-one.seconds_left)}")
    said += [
        f"{run.name}[{run.task_id}]" + (f" since {at(run.since)}" if run.since else "")
        for run in one.runs[:_MOST_NAMED]
    ]
    if one.suspect:
        said.append(f"{one.suspect} may have killed another worker: it runs alone of such")
    if one.opening:
        said.append(f"opens the message of {one.opening}, which came back from a dead worker")
    return said


@click.command("queues", cls=CeleryCommand)
@as_json_option
@click.pass_context
def queues_command(ctx: click.Context, as_json: bool) -> None:
    """List queues: how much waits, how long the oldest already, and who consumes them."""
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx) as desk:
        found = desk.queues.all()
    print_things(
        console,
        found,
        "queue",
        ("queue", "waiting", "oldest"),
        lambda one: (
            one.name,
            one.waiting,
            "" if one.oldest_seconds is None else span(one.oldest_seconds),
        ),
        lambda one: [f"consumed by {', '.join(one.workers)}"] if one.workers else [],
    )


@click.command("purge", cls=CeleryCommand)
@click.option("-Q", "--queues", default="", help="Only these, with commas between. Default: all.")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@as_json_option
@click.pass_context
def purge_command(ctx: click.Context, queues: str, force: bool, as_json: bool) -> None:
    """Empty queues for good: without it, what `celery purge` removed would be sent again.

    What workers have fetched already still runs, and parked tasks stay parked: revoke those.
    """
    with errors_told(ctx):
        app = app_of(ctx)
        names = [name.strip() for name in queues.split(",") if name.strip()]
        names = names or sorted(app.amqp.queues)
        if not force and not as_json:
            click.confirm(f"Remove all messages of {', '.join(names)}?", abort=True)
        done = purge(app, names)
    if as_json:
        print_json(done)
        return
    removed, cancelled = counted(done.messages, "message"), counted(done.records, "task")
    click.echo(f"{removed} removed, {cancelled} cancelled")


@click.command("run", cls=CeleryCommand)
@click.argument("run_id", metavar="[ID]", default="")
@as_json_option
@click.pass_context
def run(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """Show a run (`task.run_on`): its members, which worker each has, and what is missing.

    Without an ID those are listed that are not over, the latest first.
    """
    if not run_id:
        _list_runs(ctx, as_json)
        return
    with desk_of(ctx) as desk:
        view = desk.runs.get(run_id)
    if view is None:
        click.echo(f"There is no run {printable(run_id)}, or none any more.", err=True)
        sys.exit(1)
    if as_json:
        print_json(view)
        return
    console = console_of(ctx)
    console.print(printable(view.sentence))
    click.echo()
    print_list(
        console,
        ("member", "worker", "state", "result"),
        [(one.task_id, one.worker, one.state, one.result) for one in view.members],
        [[]] * len(view.members),
    )


def _list_runs(ctx: click.Context, as_json: bool) -> None:
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx) as desk:
        found = desk.runs.all()
    print_things(
        console,
        found,
        "run",
        ("run", "since (UTC)", "missing"),
        lambda one: (one.run, to_second(one.begun_at), str(one.missing)),
        lambda one: [one.sentence],
    )


@click.command("sweep", cls=CeleryCommand)
@as_json_option
@click.pass_context
def sweep(ctx: click.Context, as_json: bool) -> None:
    """Run a pass of the sweeper now, unless one has just finished, and print its report."""
    with errors_told(ctx):
        app = app_of(ctx)
        with Desk(app, patience_seconds=PATIENCE_SECONDS) as desk:
            report = desk.sweep(somebody())
        interval_seconds = reliable_of(app).config.sweep_seconds
    if as_json:
        print_json({"ran": report is not None, "report": report})
    elif report is None:
        click.echo(
            f"A pass runs, or has finished within the last {interval_seconds:g} seconds: none was "
            "needed."
        )
    else:
        for name, value in asdict(report).items():
            click.echo(f"{name.replace('_', ' ')}: {value}")


@click.command("release", cls=CeleryCommand)
@as_json_option
@click.pass_context
def release_command(ctx: click.Context, as_json: bool) -> None:
    """Give back what only workers with the package can see: before it is uninstalled.

    Messages of stopped workers return to their queues, and parked tasks are sent, their ETA intact.
    What names workers goes to the queue that it would have without that.
    """
    with errors_told(ctx):
        done = plain(release(app_of(ctx)))
    if as_json:
        print_json(done)
        return
    for name, value in done.items():
        click.echo(f"{name}: {value}")


@click.command("metrics", cls=CeleryCommand)
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=9809,
    show_default=True,
    help="0: any that is free.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen; whoever can connect can read the names of tasks and queues.",
)
@click.option(
    "--rows",
    is_flag=True,
    help="With each scrape ask the project's databases too, for rows whose task is open: one "
    "query for each model, over an index and at most 10 000 rows.",
)
@click.pass_context
def metrics(ctx: click.Context, port: int, host: str, rows: bool) -> None:
    """Serve the metrics of the fleet to Prometheus, until it is ended.

    With PROMETHEUS_MULTIPROC_DIR also what processes count that share it.
    """
    with errors_told(ctx):
        registry = registry_of(app_of(ctx), rows=rows)
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as exc:
        raise click.ClickException(f"Cannot listen on {host}:{port}: {exc.strerror}.") from exc
    click.echo(f"Serving metrics on http://{host}:{server.server_port}/metrics")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.shutdown()
        thread.join()
