"""Tasks that Celery's own tasks carry, in workers that die in the middle of those."""

from __future__ import annotations

import os
import signal
from typing import Any

from celery import Task, group

from tests.integration.project.canvases import die_once
from tests.integration.project.tasks import tasks_of

__all__ = ["add_tasks"]


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    task = tasks_of(to)

    def double(self: Any, number: int, deadly: int, where: str) -> int:
        to.effects.client.rpush(f"calls:{where}", number)
        if number == deadly:
            die_once(to, f"worker {where}")
        return 2 * number

    @task()
    def double_one(self: Any, number: int) -> int:
        """Double a number; the worker that has the 3 first dies of it."""
        return double(self, number, 3, "map")

    @task()
    def double_of(self: Any, number: int, where: str) -> int:
        """The same with a second argument: by what it is carried."""
        return double(self, number, 3, where)

    @task()
    def kill_own(self: Any, number: int) -> None:
        """Kill the own process, every time."""
        to.effects.client.rpush("calls:kill", number)
        os.kill(os.getpid(), signal.SIGKILL)

    @task(max_losses=0)
    def kill_once(self: Any, number: int) -> None:
        """The same as a task that must not run again."""
        kill_own.run(number)

    @task()
    def one(self: Any, number: int) -> int:
        """A member of a chord."""
        return number

    @task()
    def add_up(self: Any, numbers: list[int]) -> int:
        """The body of a chord."""
        to.effects.client.rpush("bodies", self.request.id)
        return sum(numbers)

    @task(base=Task)
    def plain_one(self: Any, number: int) -> int:
        """A member of a chord, of stock Celery."""
        return number

    @task(base=Task)
    def plain_add_up(self: Any, numbers: list[int]) -> int:
        """The body of a chord, of stock Celery."""
        to.effects.client.rpush("bodies", self.request.id)
        return sum(numbers)

    @task()
    def become_group(self: Any, numbers: list[int]) -> None:
        """Replace itself by a group."""
        raise self.replace(group(one.s(number) for number in numbers))
