"""The project's app with tasks that Celery's own tasks carry, in workers that die in the middle of
those.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from celery import Task, group
from celery.signals import task_prerun

from celery_reliable import ReliableTask

__all__ = ["add_tasks"]

#: Their workers die in the middle of them, once for each.
_DEADLY = ("chord_unlock", "accumulate")


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    def task(body: Any, base: Any = ReliableTask, **options: Any) -> Any:
        name = f"project.{body.__name__}"
        return to.task(body, bind=True, shared=False, base=base, name=name, **options)

    def double(self: Any, number: int, deadly: int, where: str) -> int:
        to.effects.client.rpush(f"calls:{where}", number)
        if number == deadly:
            die_once(to, where)
        return 2 * number

    @task
    def double_one(self: Any, number: int) -> int:
        """Double a number; the worker that has the 3 first dies of it."""
        return double(self, number, 3, "map")

    @task
    def double_of(self: Any, number: int, where: str) -> int:
        """The same with a second argument: by what it is carried."""
        return double(self, number, 3, where)

    def kill_own(self: Any, number: int) -> None:
        """Kill the own process, every time."""
        to.effects.client.rpush("calls:kill", number)
        os.kill(os.getpid(), signal.SIGKILL)

    task(kill_own)

    def kill_once(self: Any, number: int) -> None:
        """The same as a task that must not run again."""
        kill_own(self, number)

    task(kill_once, max_losses=0)

    @task
    def one(self: Any, number: int) -> int:
        """A member of a chord."""
        return number

    @task
    def add_up(self: Any, numbers: list[int]) -> int:
        """The body of a chord."""
        to.effects.client.rpush("bodies", self.request.id)
        return sum(numbers)

    def plain_one(self: Any, number: int) -> int:
        """A member of a chord, of stock Celery."""
        return number

    task(plain_one, Task)

    def plain_add_up(self: Any, numbers: list[int]) -> int:
        """The body of a chord, of stock Celery."""
        to.effects.client.rpush("bodies", self.request.id)
        return sum(numbers)

    task(plain_add_up, Task)

    @task
    def become_group(self: Any, numbers: list[int]) -> None:
        """Replace itself by a group."""
        raise self.replace(group(one.s(number) for number in numbers))


def die_once(to: Any, where: str) -> None:
    """Kill this worker with all its processes, the first time that this place is reached."""
    if to.effects.client.set(f"died:{where}", 1, nx=True):
        os.killpg(os.getpgrp(), signal.SIGKILL)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)

    def die_as_it_begins(sender: Any, **_: Any) -> None:
        name = sender.name.rpartition(".")[2]
        if name in _DEADLY:
            die_once(app, name)

    task_prerun.connect(die_as_it_begins, weak=False)
