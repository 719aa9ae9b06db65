"""The project's app with the members of canvases, and workers that die at one point of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from celery import chain
from celery.backends.redis import RedisBackend
from celery.signals import after_task_publish
from celery.states import FAILURE

from celery_reliable import ReliableTask
from tests.integration.project.tasks import TICK_SECONDS, Broken

__all__ = ["add_tasks"]


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    def task(body: Any) -> Any:
        return to.task(
            body, bind=True, shared=False, base=ReliableTask, name=f"project.{body.__name__}"
        )

    def take(run: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, TICK_SECONDS))
            run.tick()

    def keep_stamps(request: Any) -> None:
        for name, value in (request.stamps or {}).items():
            to.effects.client.sadd("stamped", f"{request.id} {name} {value}")

    @task
    def step(self: Any, number: int, plus: int, seconds: float = 0.2) -> int:
        """A member of anything: add to a number."""
        with to.effects.run(self) as run:
            take(run, seconds)
        return number + plus

    @task
    def gather(self: Any, numbers: Sequence[int], seconds: float = 0.2) -> int:
        """The body of a chord."""
        with to.effects.run(self) as run:
            keep_stamps(self.request)
            take(run, seconds)
        return sum(numbers)

    @task
    def note(self: Any, what: Any) -> None:
        """What `link` calls."""
        to.effects.client.rpush("notes", what)

    @task
    def host(self: Any, numbers: Sequence[int]) -> None:
        """Replace itself by a chain that adds the numbers up."""
        with to.effects.run(self) as run:
            take(run, 0.2)
            first, second, *rest = numbers
            raise self.replace(chain(step.s(first, second), *[step.s(number) for number in rest]))

    @task
    def slow_note(self: Any, what: Any) -> None:
        """The next of a chain, which takes longer than a recovery."""
        with to.effects.run(self) as run:
            take(run, 6)

    @task
    def grow(self: Any, number: int) -> int:
        """A chord's member that is killed in its first run, then adds another to its chord."""
        with to.effects.run(self) as run:
            if run.number == 1:
                die(whole=False)
            self.add_to_chord(step.si(number, 0))
        return number

    @task
    def at_flag(self: Any, flag: str, number: int) -> int:
        """Kill its process, or fail, as long as nobody has opened the gate `flag`."""
        with to.effects.run(self):
            if not to.effects.is_open(flag):
                if flag.startswith("poison"):
                    os.kill(os.getpid(), signal.SIGKILL)
                raise Broken("not open")
        return number

    @task
    def on_error(self: Any, failed_id: str) -> str:
        """What `link_error` calls."""
        to.effects.client.rpush("errbacks", failed_id)
        return failed_id


def die(whole: bool) -> None:
    """End this process, or its worker with all its processes, as a kill from outside does."""
    if whole:
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(to: Any, where: str) -> None:
    """Die the first time that this place is reached; `where` begins with `worker` or `child`."""
    if to.effects.client.set(f"died:{where}", 1, nx=True):
        die(where.startswith("worker"))


def lay_trap(to: Any, where: str) -> None:
    """Make processes of this app die once at a point between a body's end and its settlement."""
    _, _, point = where.partition(" ")
    if point == "before it is counted":
        counted = RedisBackend.on_chord_part_return

        def on_chord_part_return(self: Any, request: Any, *args: Any, **options: Any) -> Any:
            die_once(to, where)
            return counted(self, request, *args, **options)

        RedisBackend.on_chord_part_return = on_chord_part_return
    elif point == "before the body is sent":
        unpack = RedisBackend._unpack_chord_result

        def _unpack_chord_result(self: Any, *args: Any, **options: Any) -> Any:
            die_once(to, where)
            return unpack(self, *args, **options)

        RedisBackend._unpack_chord_result = _unpack_chord_result
    elif point == "after its failure is stored":
        stored = RedisBackend.store_result

        def store_result(self: Any, task_id: str, result: Any, state: str, **options: Any) -> Any:
            answer = stored(self, task_id, result, state, **options)
            if state == FAILURE:
                die_once(to, where)
            return answer

        RedisBackend.store_result = store_result
    else:

        def on_sent(sender: str, **_: Any) -> None:
            if sender in ("project.gather", "project.slow_note"):
                die_once(to, where)

        after_task_publish.connect(on_sent, weak=False)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
    if trap := os.environ.get("TRAP"):
        lay_trap(app, trap)
