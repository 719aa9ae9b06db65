"""The members of canvases, and workers that die at one point of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from celery import chain
from celery.backends.redis import RedisBackend
from celery.signals import after_task_publish, task_prerun

from tests.integration.project.tasks import Broken, _pass_time, tasks_of

__all__ = ["add_tasks", "lay_trap"]


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    task = tasks_of(to)

    def keep_stamps(request: Any) -> None:
        for name, value in (request.stamps or {}).items():
            to.effects.client.sadd("stamped", f"{request.id} {name} {value}")

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
            keep_stamps(self.request)
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
