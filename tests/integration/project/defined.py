"""Tasks that are defined in every way that users have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from celery.exceptions import Reject

from celery_reliable import ReliableTask
from tests.integration.project import tasks

__all__ = ["KINDS", "add_tasks"]

Order = Mapping[str, Any]


def order_of(key: str, order: Order, gate: str) -> Any:
    return order[key]


class Orders:
    """Somebody else's object."""

    def key(self, order: Order, gate: str) -> Any:
        return order["id"]


def work(self: Any, order: Order, gate: str) -> str:
    with self.app.effects.run(self, f"{self.name} {order['id']}") as run:
        tasks._wait_at_gate(self, run, gate)
    return gate


class ByClassMethod(ReliableTask):
    name = "project.by_class_method"
    run = work

    @classmethod
    def object_id(cls, order: Order, gate: str) -> Any:
        assert cls.name
        return order["id"]


class ByStaticMethod(ReliableTask):
    name = "project.by_static_method"
    run = work

    @staticmethod
    def object_id(order: Order, gate: str) -> Any:
        return order["id"]


class ByLambda(ReliableTask):
    name = "project.by_lambda_of_class"
    run = work
    object_id = lambda order, gate: order["id"]  # noqa: E731 - what users write


CLASSES = (ByClassMethod, ByStaticMethod, ByLambda)
SPECS = {
    "by_lambda": lambda order, gate: order["id"],
    "by_lambda_of_some": lambda order, *_: order["id"],
    "by_partial": partial(order_of, "id"),
    "by_bound_method": Orders().key,
    "by_wrapped": staticmethod(lambda order, gate: order["id"]),
}
KINDS = sorted([*SPECS, *(cls.name.removeprefix("project.") for cls in CLASSES)])


def redelivered(self: Any) -> str:
    """Send itself back unless that was done before, as Celery's documentation shows it."""
    with self.app.effects.run(self):
        if not self.request.delivery_info["redelivered"]:
            raise Reject("not yet", requeue=True)
    return "redelivered"


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""
    for cls in CLASSES:
        # A class of its own for each app.
        to.register_task(type(cls.__name__, (cls,), {"app": to, "name": cls.name})())
    task = tasks.tasks_of(to)
    for name, spec in SPECS.items():
        task(name=f"project.{name}", object_id=spec)(work)
    task()(redelivered)
