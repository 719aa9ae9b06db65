"""The commands that stop and resume: queues, tasks, workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from celery_reliable.operations.cli.printing import console_of, counted, print_json
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.order_words import in_words
from celery_reliable.operations.stop_button import OrderView, UnknownOrder
from celery_reliable.operations.tables import print_list, printable
from celery_reliable.orders import OrderKind

__all__ = ["drain", "orders", "pause", "resume", "strike"]

_for = click.option(
    "--for",
    "for_seconds",
    type=Duration(0.001),
    help="End it after so long (90, 15m, 2h); without this it holds until it is resumed.",
)
_reason = click.option("--reason", "why", default="", help="Why: others will ask.")
_stop = click.option(
    "--stop",
    is_flag=True,
    help="Stop what runs there, too, in prefork pools (others cannot); it runs again.",
)

_later = click.option(
    "--later", is_flag=True, help="Also for a queue, task or worker that nobody knows yet."
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for one in (click.pass_context, as_json_option, _later, _stop, _reason, _for):
        command = one(command)
    return command


@click.command("pause", cls=CeleryCommand)
@click.argument("queue")
@_options
def pause(ctx: click.Context, queue: str, **how: Any) -> None:
    """Let nobody take from a queue until it is resumed; plain tasks, too."""
    _give(ctx, OrderKind.PAUSE, queue, **how)


@click.command("strike", cls=CeleryCommand)
@click.argument("task")
@click.option("--object", "object_id", help="Only what is about the object with this id.")
@_options
def strike(ctx: click.Context, task: str, object_id: str | None, **how: Any) -> None:
    """Let no attempt of a task begin until it is resumed: what would begin is parked."""
    _give(ctx, OrderKind.STRIKE, task, object_id=object_id, **how)


@click.command("drain", cls=CeleryCommand)
@click.argument("worker")
@_options
def drain(ctx: click.Context, worker: str, **how: Any) -> None:
    """Let a worker finish what it runs and take nothing new until it is resumed."""
    _give(ctx, OrderKind.DRAIN, worker, **how)


def _give(
    ctx: click.Context,
    kind: OrderKind,
    target: str,
    *,
    for_seconds: float | None,
    why: str,
    stop: bool,
    later: bool,
    as_json: bool,
    object_id: str | None = None,
) -> None:
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        view = desk.orders.give(
            kind,
            target,
            by=somebody(),
            why=why,
            object_id=object_id,
            for_seconds=for_seconds,
            stop=stop,
            later=later,
        )
    if as_json:
        print_json(view.as_dict())
        return
    click.echo(printable(f"Order {view.order.id}: {in_words(view.order)}."))
    for note in view.notes:
        click.echo(printable(note), err=True)


@click.command("resume", cls=CeleryCommand)
@click.argument("which", metavar="ORDER...", nargs=-1, required=True)
@as_json_option
@click.pass_context
def resume(ctx: click.Context, which: tuple[str, ...], as_json: bool) -> None:
    """End orders: each by its id, or by the queue, task or worker that it names."""
    ended: list[OrderView] = []
    unknown: list[UnknownOrder] = []
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        for one in which:
            try:
                orders = desk.orders.resume(one, by=somebody())
            except UnknownOrder as exc:
                unknown.append(exc)
                continue
            ended += [OrderView(order, in_force=False) for order in orders]
            if not as_json:
                # At once: Redis may be gone before the next one is ended.
                for order in orders:
                    click.echo(printable(f"Order {order.id} has ended: {order.target} goes on."))
    if as_json:
        print_json({"items": [each.as_dict() for each in ended]})
    if unknown:
        raise click.ClickException("\n".join(printable(str(exc)) for exc in unknown))


@click.command("orders", cls=CeleryCommand)
@as_json_option
@click.pass_context
def orders(ctx: click.Context, as_json: bool) -> None:
    """List what is paused, struck and drained: by whom, why, until when, and who obeys."""
    console = None if as_json else console_of(ctx)
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        views = desk.orders.all()
    if console is None:
        print_json({"items": [one.as_dict() for one in views]})
        return
    if views:
        print_list(
            console,
            ("order", "what", "parked", "known to"),
            [
                (
                    one.order.id,
                    f"{one.order.kind.value} {one.order.target}",
                    str(one.parked),
                    counted(one.heard, "worker"),
                )
                for one in views
            ],
            [_about(one) for one in views],
        )
    click.echo(counted(len(views), "order"))


def _about(view: OrderView) -> list[str]:
    lines = [f"{in_words(view.order)}."]
    if not view.in_force:
        lines.append("It is over, and what it has parked is being sent.")
    return lines
