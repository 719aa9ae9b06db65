"""The commands that stop and resume: queues, tasks, workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.audit import somebody
from celery_reliable.operations.cli.calling import as_json_option, desk_of
from celery_reliable.operations.cli.choosing import Duration
from celery_reliable.operations.cli.printing import console_of, counted, print_json, print_things
from celery_reliable.operations.stop_button import UnknownOrder
from celery_reliable.operations.views import Order
from celery_reliable.operations.words import printable
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
    with desk_of(ctx) as desk:
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
        print_json(view)
        return
    click.echo(printable(f"Order {view.id}: {view.sentence}."))
    for note in view.notes:
        click.echo(printable(note), err=True)


@click.command("resume", cls=CeleryCommand)
@click.argument("which", metavar="ORDER...", nargs=-1, required=True)
@as_json_option
@click.pass_context
def resume(ctx: click.Context, which: tuple[str, ...], as_json: bool) -> None:
    """End orders: each by its id, or by the queue, task or worker that it names."""
    ended: list[Order] = []
    unknown: list[UnknownOrder] = []
    with desk_of(ctx) as desk:
        for one in which:
            try:
                orders = desk.orders.resume(one, by=somebody())
            except UnknownOrder as exc:
                unknown.append(exc)
                continue
            ended += orders
            if not as_json:
                # At once: Redis may be gone before the next one is ended.
                for order in orders:
                    click.echo(printable(f"Order {order.id} has ended: {order.target} goes on."))
    if as_json:
        print_json({"items": ended})
    if unknown:
        raise click.ClickException("\n".join(printable(str(exc)) for exc in unknown))


@click.command("orders", cls=CeleryCommand)
@as_json_option
@click.pass_context
def orders(ctx: click.Context, as_json: bool) -> None:
    """List what is paused, struck and drained: by whom, why, until when, and who obeys."""
    console = console_of(ctx, as_json=as_json)
    with desk_of(ctx) as desk:
        found = desk.orders.all()
    print_things(
        console,
        found,
        "order",
        ("order", "what", "parked", "known to"),
        lambda one: (
            one.id,
            f"{one.kind.value} {one.target}",
            str(one.parked),
            counted(one.heard, "worker"),
        ),
        _about,
    )


def _about(order: Order) -> list[str]:
    over = [] if order.in_force else ["It is over, and what it has parked is being sent."]
    return [f"{order.sentence}.", *over]
