"""The members of canvases, and workers that die at one point of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from celery import Task, chain, group
from celery.backends.redis import RedisBackend
from celery.signals import after_task_publish, task_prerun

from tests.integration.project.tasks import Broken, _pass_time, tasks_of

__all__ = ["add_tasks", "lay_trap"]


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    task = tasks_of(to)

    @task()
    def step(self: Any, number: int, plus: int, seconds: float = 0.2) -> int:
        """A member of anything: add to a number."""
        with to.effects.run(self) as run:
            _pass_time(run, seconds)
        return number + plus

    @task()
    def gather(self: Any, numbers: Sequence[int], seconds: float = 0.2) -> int:
        """The body of a chord."""
        with to.effects.run(self) as run:
            _pass_time(run, seconds)
        return sum(numbers)

    @task()
    def note(self: Any, what: Any) -> None:
        """What `link` calls."""
        to.effects.client.rpush("notes", what)

    @task()
    def host(self: Any, numbers: Sequence[int]) -> None:
        """Replace itself by a chain that adds the numbers up."""
        with to.effects.run(self) as run:
            _pass_time(run, 0.2)
            first, second, *rest = numbers
            raise self.replace(chain(step.s(first, second), *[step.s(number) for number in rest]))

    @task()
    def slow_note(self: Any, what: Any) -> None:
        """The next of a chain, which takes longer than a recovery."""
        with to.effects.run(self) as run:
            _pass_time(run, 6)

    @task()
    def at_flag(self: Any, flag: str, number: int) -> int:
        """Kill its process, or fail, as long as nobody has opened the gate `flag`."""
        with to.effects.run(self):
            if not to.effects.is_open(flag):
                if flag.startswith("poison"):
                    os.kill(os.getpid(), signal.SIGKILL)
                raise Broken("not open")
        return number

    @task()
    def on_error(self: Any, failed_id: str) -> str:
        """What `link_error` calls."""
        to.effects.client.rpush("errbacks", failed_id)
        return failed_id

    # What Celery's own tasks carry, in workers that die in the middle of those.
    def double(self: Any, number: int, where: str) -> int:
        to.effects.client.rpush(f"calls:{where}", number)
        if number == 3:
            die_once(to, f"worker {where}")
        return 2 * number

    @task()
    def double_one(self: Any, number: int) -> int:
        """Double a number; the worker that has the 3 first dies of it."""
        return double(self, number, "map")

    @task()
    def double_of(self: Any, number: int, where: str) -> int:
        """The same with a second argument: by what it is carried."""
        return double(self, number, where)

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


def die_once(to: Any, where: str) -> None:
    """Die the first time that this place is reached; `where` begins with `worker` or `child`."""
    if to.effects.client.set(f"died:{where}", 1, nx=True):
        if where.startswith("worker"):
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def lay_trap(to: Any, where: str) -> None:
    """Make processes of this app die once at a point between a body's end and its settlement, or as
    one of Celery's own tasks begins that carry others.
    """
    points = {
        "before it is counted": "on_chord_part_return",
        "before the body is sent": "_unpack_chord_result",
    }
    point = where.partition(" ")[2]
    if point in points:
        own = getattr(RedisBackend, points[point])

        def die_first(self: Any, *args: Any, **options: Any) -> Any:
            die_once(to, where)
            return own(self, *args, **options)

        setattr(RedisBackend, points[point], die_first)

    def on_begin(sender: Any, **_: Any) -> None:
        name = sender.name.rpartition(".")[2]
        if point == "as it begins" and name in ("chord_unlock", "accumulate"):
            die_once(to, f"worker {name}")

    def on_sent(sender: str, **_: Any) -> None:
        if point.startswith("after") and sender in ("project.gather", "project.slow_note"):
            die_once(to, where)

    task_prerun.connect(on_begin, weak=False)
    after_task_publish.connect(on_sent, weak=False)
