"""Orders: what operators pause, strike and drain, who does not obey, and what waits for it."""

from __future__ import annotations

import math
from typing import Annotated

from celery_reliable import events
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger, answers
from celery_reliable.operations.history import noted
from celery_reliable.operations.operation import BadParameter, Param, Part
from celery_reliable.operations.views import NOUNS, Order
from celery_reliable.options import is_reliable, object_of
from celery_reliable.orders import Order as Given
from celery_reliable.orders import OrderKind, Orders
from celery_reliable.settings import did_you_mean

__all__ = ["StopButton", "UnknownOrder", "obeyed_by"]


class UnknownOrder(ReliableError, LookupError):
    """There is no such order (any more)."""


def obeyed_by(ledger: Ledger, found: Orders) -> list[Order]:
    """Return the orders with what is known of the workers that have received them."""
    if not found.all:
        return []
    waiting = ledger.orders.waiting([one.id for one in found.all if one.kind is OrderKind.STRIKE])
    looks = [one for one in ledger.worker_looks() if not one.lease.is_dead]
    heard = sum(one.doing.get("orders") == found.version for one in looks)
    return [
        Order.of(
            one,
            in_force=one.is_in_force(found.now_ms),
            waiting=waiting.get(one.id, 0),
            heard=heard,
        )
        for one in found.all
    ]


class StopButton(Part):
    """Gives orders and ends them.  Raises what the ledger raises, and BadParameter.

    Every worker obeys within three seconds, and workers that are started later do from the
    beginning.  Nothing is lost by an order: what is struck waits, what is paused stays in its
    queue, what a drained worker had not begun goes back.
    """

    def all(self) -> list[Order]:
        """List what is paused, struck and drained: by whom, why, until when, and who obeys."""
        return obeyed_by(self.ledger, self.ledger.orders.read())

    def give(
        self,
        kind: Annotated[
            OrderKind, Param("What to stop: a queue (pause), a task (strike), a worker (drain).")
        ],
        target: Annotated[
            str,
            Param(
                "The name of the queue, task or worker, or a shell pattern.",
                min_length=1,
                max_length=500,
                is_argument=True,
                metavar="NAME",
            ),
        ],
        *,
        by: str,
        object_id: Annotated[
            str | None,
            Param("Stop only tasks about the object with this id.", max_length=500),
        ] = None,
        why: Annotated[
            str, Param("The reason, for the other operators.", max_length=500, option="--reason")
        ] = "",
        for_seconds: Annotated[
            float | None,
            Param(
                "The time after which the order ends. Default: when it is resumed.",
                ge=0.001,
                le=3e7,
                is_duration=True,
            ),
        ] = None,
        stop: Annotated[
            bool,
            Param("Stop running attempts too, in prefork pools only; their tasks run again later."),
        ] = False,
        later: Annotated[
            bool, Param("Accept the name of a queue, task or worker that does not exist yet.")
        ] = False,
    ) -> Order:
        """Pause a queue, strike a task, or drain a worker.

        Every worker obeys within three seconds, and so do those that start later.  Nothing is lost.

        Raises BadParameter.
        """
        self._check(Given("", kind, target), object_id, later=later)
        about = {
            "target": target,
            "object_id": object_id,
            "for_seconds": for_seconds,
            "stop": stop,
            "why": why,
        }
        with noted(self.ledger, kind.value, by, about) as outcome:
            order = self.ledger.orders.give(
                kind,
                target,
                object_id=object_id,
                is_stop=stop,
                by=by,
                why=why,
                for_ms=math.ceil((for_seconds or 0) * 1000),
            )
            outcome.done = 1
        events.order_given(
            app=self.app,
            kind=kind.value,
            target=target,
            object_id=object_id,
            by=by,
            why=why,
            order=order.id,
        )
        return next((one for one in self.all() if one.id == order.id), Order.of(order))

    def resume(
        self,
        orders: Annotated[
            tuple[Annotated[str, Param(min_length=1, max_length=500)], ...],
            Param(
                "Their ids, or the queues, tasks or workers that they name.",
                min_length=1,
                most=100,
                is_argument=True,
                metavar="ORDER...",
            ),
        ],
        *,
        by: str,
    ) -> list[Order]:
        """End orders: each by its id, or by the queue, task or worker that it names.

        What waits for them comes back in the order of publication.

        Raises UnknownOrder for those that there are not, when the others are ended: so this may be
        interrupted and repeated.
        """
        found = self.ledger.orders.read().all
        meant = [one for one in found if {one.id, one.target} & {*orders} and not one.ended_ms]
        about = {"orders": [one.id for one in meant]}
        with noted(self.ledger, "resume", by, about, is_noted=bool(meant)) as outcome:
            for order in meant:
                is_more = True
                while is_more:
                    answer = self.ledger.orders.resume(order.id, by=by)
                    is_more = isinstance(answer, answers.Resumed) and answer.is_more
                outcome.done += 1
                kind, target = order.kind.value, order.target
                events.order_ended(app=self.app, kind=kind, target=target, by=by, order=order.id)
        known = {name for one in meant for name in (one.id, one.target)}
        if unknown := ", ".join(repr(name) for name in orders if name not in known):
            others = " The others are ended." if meant else ""
            raise UnknownOrder(
                f"There is no order {unknown}, and none against what is called so.{others}"
            )
        return [Order.of(one, in_force=False) for one in meant]

    def _check(self, order: Given, object_id: str | None, *, later: bool) -> None:
        """Raise BadParameter for what nobody would obey."""
        kind, target = order.kind, order.target
        is_strike = kind is OrderKind.STRIKE
        if object_id is not None and not is_strike:
            raise BadParameter("object_id", "Only a strike is about one object.")
        if is_strike:
            self.app.loader.import_default_modules()
        tasks = [one for name, one in self.app.tasks.items() if is_strike and order.names(name)]
        if tasks and not any(map(is_reliable, tasks)):
            raise BadParameter(
                "target",
                f"{target} is no ReliableTask: nobody would ask the ledger whether it may run. "
                "Pause its queue.",
            )
        if (
            object_id is not None
            and tasks
            and not any(is_reliable(one) and object_of(type(one)) for one in tasks)
        ):
            raise BadParameter(
                "object_id",
                f"{target} has no object_id, so none of its calls is about an object. Strike the "
                "task without an object, or give it an object_id.",
            )
        known = self._known(kind)
        if not (later or any(map(order.names, known))):
            near = did_you_mean(target, known)
            raise BadParameter(
                "target",
                f"Nobody knows a {NOUNS[kind]} {target}. {near}".rstrip()
                + " If one that comes later is meant, say so (--later).",
            )

    def _known(self, kind: OrderKind) -> set[str]:
        """Return the names that an order of a kind may mean."""
        if kind is OrderKind.STRIKE:
            return {*self.app.tasks}
        looks = [one for one in self.ledger.worker_looks() if not one.lease.is_dead]
        if kind is OrderKind.DRAIN:
            return {one.lease.nodename for one in looks}
        consumed = {str(queue) for one in looks for queue in one.doing.get("queues") or ()}
        return consumed | {*self.app.amqp.queues}
