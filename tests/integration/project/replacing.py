"""The project's app with tasks that replace themselves by canvases of every shape."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from celery import chain, chord, group
from celery.exceptions import Ignore

from celery_reliable import ReliableTask
from tests.integration.project.tasks import _wait_at_gate

__all__ = ["SHAPES", "add_tasks"]

#: The members of each, by the names of their runs; the last is published under the host's id.
SHAPES: dict[str, Sequence[str]] = {
    "task": ["last"],
    "chain": ["first", "last"],
    "chord": ["first", "second", "last"],
    "group": ["first", "second"],
    "chain that ends in a chord": ["first", "second", "third", "last"],
    "chord with a chain as its body": ["first", "second", "third", "last"],
    "chain with a group in it": ["first", "second", "third", "last"],
    "chain that retries": ["first", "last", "last"],
    "task that is replaced again": ["again", "first", "last"],
    "chain whose last is replaced again": ["first", "again", "first", "last"],
}


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""

    def task(body: Any) -> Any:
        return to.task(
            body, bind=True, shared=False, base=ReliableTask, name=f"project.{body.__name__}"
        )

    @task
    def member(self: Any, name: str, retries: int = 0) -> str:
        """A member of any shape; the first waits until the test opens its gate."""
        with to.effects.run(self, name) as run:
            if name == "first":
                _wait_at_gate(self, run, "first")
            if self.request.retries < retries:
                raise self.retry(countdown=0)
        return name

    def replaced(self: Any, shape: str) -> None:
        with to.effects.run(self, "again"):
            raise self.replace(canvas(shape))

    @task
    def become(self: Any, shape: str) -> None:
        """Replace itself by a canvas."""
        replaced(self, shape)

    class Own:
        """Publishes what a task is replaced by itself."""

        def on_replace(self, sig: Any) -> None:
            sig.apply_async(priority=0)
            raise Ignore("replaced in a way of its own")

    class OwnReplacing(Own, ReliableTask):
        """A base with a handler that Celery's does not hear of."""

        abstract = True

    @to.task(bind=True, shared=False, base=OwnReplacing, name="project.become_by_its_own_handler")
    def become_by_its_own_handler(self: Any, shape: str) -> None:
        replaced(self, shape)

    def canvas(shape: str) -> Any:
        first, second, third, last = (
            member.si(name) for name in ("first", "second", "third", "last")
        )
        shapes = {
            "task": last,
            "chain": chain(first, last),
            "chord": chord([first, second], last),
            "group": group(first, second),
            "chain that ends in a chord": chain(first, chord([second, third], last)),
            "chord with a chain as its body": chord([first, second], chain(third, last)),
            "chain with a group in it": chain(first, group(second, third), last),
            "chain that retries": chain(first, member.si("last", 1)),
            "task that is replaced again": become.si("chain"),
            "chain whose last is replaced again": chain(first, become.si("chain")),
        }
        return shapes[shape]


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
