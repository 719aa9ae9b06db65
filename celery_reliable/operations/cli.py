"""`celery -A proj reliable …`: what operators see of the ledger, and do to it, at a terminal.

Every command prints for people, or with ``--json`` the same for programs, on stdout.  What is wrong
is one paragraph on stderr: exit code 1, or 2 when the command itself was not given as it should be.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from celery import Celery
from celery.bin.base import CeleryCommand, handle_preload_options
from kombu.exceptions import OperationalError

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.queues import purge
from celery_reliable.operations.tables import print_list, print_pairs, printable
from celery_reliable.operations.uninstall import release
from celery_reliable.operations.views import full_view, short_view
from celery_reliable.recovery import Sweeper

__all__ = ["reliable"]

#: A person waits at the terminal: shorter than what tasks allow a Redis that is being restarted.
_PATIENCE_SECONDS = 3.0
_LONGEST_EXCEPTION = 200

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group("reliable")
@click.pass_context
@handle_preload_options
def reliable(ctx: click.Context, **_: Any) -> None:
    """Dead letters, workers and passes of celery-reliable."""


@reliable.group("dead-letters")
def dead_letters() -> None:
    """Tasks that were put aside: lost too often, failed for good, or not readable."""


@dead_letters.command("list", cls=CeleryCommand)
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many."
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="After so many.")
@_as_json
@click.pass_context
def list_(ctx: click.Context, limit: int, offset: int, as_json: bool) -> None:
    """List dead letters, the latest first."""
    console = None if as_json else _console(ctx)
    with _errors_told(ctx), DeadLetters(_app(ctx), patience_seconds=_PATIENCE_SECONDS) as letters:
        views = [short_view(letter) for letter in letters.list(limit, offset)]
        total = letters.count()
    if console is None:
        _print_json(views)
        return
    if views:
        print_list(
            console,
            ("task id", "reason", "buried (UTC)"),
            [(view["task_id"], view["reason"], _to_second(view["buried_at"])) for view in views],
            [_about(view) for view in views],
        )
    click.echo(f"{len(views)} of {_counted(total, 'dead letter')}")


@dead_letters.command("show", cls=CeleryCommand)
@click.argument("task_id", metavar="ID")
@click.option(
    "--with-arguments", is_flag=True, help="Show the arguments and the whole message, unredacted."
)
@_as_json
@click.pass_context
def show(ctx: click.Context, task_id: str, with_arguments: bool, as_json: bool) -> None:
    """Show one dead letter; its arguments only when asked for."""
    console = None if as_json else _console(ctx)
    with _errors_told(ctx), DeadLetters(_app(ctx), patience_seconds=_PATIENCE_SECONDS) as letters:
        view = full_view(letters.get(task_id), with_arguments=with_arguments)
    if console is None:
        _print_json(view)
        return
    history, traceback = view.pop("history"), view.pop("traceback")
    for name in ("headers", "properties"):
        view[name] = _said(view.get(name) or {})
    print_pairs(console, [(name, _shown(value)) for name, value in view.items()])
    click.echo()
    if history:
        print_list(
            console,
            ("at (UTC)", "what", "attempt"),
            [
                (_to_second(one["at"]), one["what"], _shown(one["attempt"] or None))
                for one in history
            ],
            [
                "\n".join(
                    f"{name}: {_shown(value)}"
                    for name, value in one.items()
                    if value and name not in ("at", "what", "attempt")
                )
                for one in history
            ],
        )
        click.echo()
    if traceback:
        click.echo(printable(traceback))


@dead_letters.command("replay", cls=CeleryCommand)
@click.argument("task_id", metavar="ID")
@_as_json
@click.pass_context
def replay(ctx: click.Context, task_id: str, as_json: bool) -> None:
    """Return a dead letter to its queue, under its id, with fresh budgets of losses and retries."""
    with _errors_told(ctx), DeadLetters(_app(ctx), patience_seconds=_PATIENCE_SECONDS) as letters:
        done = letters.replay(task_id)
    if as_json:
        _print_json(
            {
                "task_id": done.task_id,
                "replayed": True,
                "next_attempt": done.attempt,
                "sent": done.is_sent,
                "problem": done.problem,
            }
        )
        return
    click.echo(f"Replayed {printable(task_id)}: its next run is attempt {done.attempt}.")
    if not done.is_sent:
        click.echo(
            f"Its message could not be sent yet ({printable(done.problem)}). Nothing is lost: "
            "the sweeper sends it when the broker is back.",
            err=True,
        )


@dead_letters.command("discard", cls=CeleryCommand)
@click.argument("task_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_as_json
@click.pass_context
def discard(ctx: click.Context, task_id: str, yes: bool, as_json: bool) -> None:
    """Remove a dead letter for good."""
    with _errors_told(ctx), DeadLetters(_app(ctx), patience_seconds=_PATIENCE_SECONDS) as letters:
        if not yes:
            what = f"{letters.get(task_id).name or 'the message'}[{task_id}]"
            click.confirm(f"Discard {printable(what)} for good?", abort=True, err=True)
        letters.discard(task_id)
    if as_json:
        _print_json({"task_id": task_id, "discarded": True})
    else:
        click.echo(f"Discarded {printable(task_id)}.")


@reliable.command("sweep", cls=CeleryCommand)
@_as_json
@click.pass_context
def sweep(ctx: click.Context, as_json: bool) -> None:
    """Run a pass of the sweeper now, unless one has just finished, and print its report."""
    with _errors_told(ctx):
        sweeper = Sweeper(_app(ctx))
        try:
            report, _ = sweeper.run_if_due()
            interval_seconds = sweeper.config.sweep_seconds
        finally:
            sweeper.close()
    if as_json:
        _print_json({"ran": report is not None, "report": report.as_dict() if report else None})
    elif report is None:
        click.echo(
            f"A pass runs, or has finished within the last {interval_seconds:g} seconds: none was "
            "needed."
        )
    else:
        for name, value in report.as_dict().items():
            click.echo(f"{name.replace('_', ' ')}: {value}")


@reliable.command("release", cls=CeleryCommand)
@_as_json
@click.pass_context
def release_(ctx: click.Context, as_json: bool) -> None:
    """Give back what only workers with the package can see: before it is uninstalled.

    Messages of stopped workers return to their queues, and parked tasks are sent, their ETA intact.
    """
    with _errors_told(ctx):
        done = dataclasses.asdict(release(_app(ctx)))
    if as_json:
        _print_json(done)
        return
    for name, value in done.items():
        click.echo(f"{name}: {value}")


@reliable.command("workers", cls=CeleryCommand)
@_as_json
@click.pass_context
def workers(ctx: click.Context, as_json: bool) -> None:
    """List the workers that hold a lease, and how many tasks each of them runs."""
    console = None if as_json else _console(ctx)
    with _errors_told(ctx):
        ledger = reliable_of(_app(ctx)).own_ledger(
            reply_timeout_seconds=5.0, patience_seconds=_PATIENCE_SECONDS
        )
        try:
            rows = _worker_rows(ledger)
        finally:
            ledger.close()
    if console is None:
        _print_json(rows)
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
    click.echo(_counted(len(rows), "worker"))
    for reason in sorted({row["no_witness"] for row in rows if row["no_witness"]}):
        click.echo(
            f"Without a witness a death shows only when the lease has run out. {printable(reason)}"
        )


@reliable.command("purge", cls=CeleryCommand)
@click.option("-Q", "--queues", default="", help="Only these, with commas between. Default: all.")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@_as_json
@click.pass_context
def purge_(ctx: click.Context, queues: str, force: bool, as_json: bool) -> None:
    """Empty queues for good: without it, what `celery purge` removed would be sent again.

    What workers have fetched already still runs, and parked tasks stay parked: revoke those.
    """
    with _errors_told(ctx):
        app = _app(ctx)
        names = [name.strip() for name in queues.split(",") if name.strip()]
        names = names or sorted(app.amqp.queues)
        if not force and not as_json:
            click.confirm(f"Remove all messages of {', '.join(names)}?", abort=True)
        done = dataclasses.asdict(purge(app, names))
    if as_json:
        _print_json(done)
        return
    removed, cancelled = _counted(done["messages"], "message"), _counted(done["records"], "task")
    click.echo(f"{removed} removed, {cancelled} cancelled")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


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


def _app(ctx: click.Context) -> Celery:
    """Return the app with its modules imported: in a Django project nothing else sets Django up."""
    app = ctx.obj.app
    app.loader.import_default_modules()
    app.finalize()
    return app


@contextmanager
def _errors_told(ctx: click.Context) -> Iterator[None]:
    """Turn what an operator can do something about into one paragraph on stderr, exit code 1."""
    try:
        yield
    except ReliableError as exc:
        raise click.ClickException(printable(str(exc))) from exc
    except Exception as exc:
        if not isinstance(exc, _broker_errors(ctx)):
            raise
        raise click.ClickException(
            f"The broker could not be reached: {printable(str(exc))}. Check that it is up and "
            "that the app's broker_url names it."
        ) from exc


def _broker_errors(ctx: click.Context) -> tuple[type[Exception], ...]:
    connection = ctx.obj.app.connection_for_read()
    return (OperationalError, *connection.connection_errors, *connection.channel_errors)


def _print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    click.echo(json.dumps(value, indent=2))


def _console(ctx: click.Context) -> Any:
    """Return where tables go.  Exits with 2 when the package that draws them is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        raise click.UsageError(
            "Tables are drawn by the package rich, which is not installed: "
            'pip install "celery-reliable[cli]", or ask for --json.',
        ) from None
    return Console(no_color=bool(ctx.obj.no_color), highlight=False, markup=False, emoji=False)


def _about(view: Mapping[str, Any]) -> str:
    exception = view["exception"]
    if len(exception) > _LONGEST_EXCEPTION:
        exception = f"{exception[:_LONGEST_EXCEPTION]}…"
    named = f"{view['name'] or '(not readable)'}, attempts: {view['attempts']}"
    return f"{named}\n{exception}" if exception else named


def _to_second(iso: str) -> str:
    return iso[:19].replace("T", " ")


def _said(headers: Mapping[str, Any]) -> str:
    # Most headers of most messages say nothing.
    said = {name: one for name, one in headers.items() if one not in (None, [], {}, [None, None])}
    return "\n".join(f"{name}: {_shown(one)}" for name, one in said.items())


def _shown(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
