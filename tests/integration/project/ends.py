"""A task that ends in every way, and tasks whose end the main process has to see to."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from celery.signals import task_failure
from celery.utils import uuid

from celery_reliable import ReliableTask
from tests.integration.project import tasks
from tests.integration.project.tasks import Broken

__all__ = ["add_tasks"]

LONG_SECONDS = 30.0
#: Longer than two looks at the claims.
HOOK_SECONDS = 6.0
#: How long the first runs wait for each other.
TOGETHER_SECONDS = 60.0


class Unpicklable(Exception):
    """Can be pickled, and not be made again of what was pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def _ignore_with_a_state(task: Any) -> None:
    task.update_state(state="DONE_BY_HAND")
    raise Ignore()


def _finish_a_step_first(task: Any) -> str:
    task.update_state(state="PROGRESS", meta={"status": "SUCCESS"})
    return "finished"


def _catch_the_soft_limit(task: Any) -> str:
    try:
        time.sleep(LONG_SECONDS)
    except SoftTimeLimitExceeded:
        return "tidied up"
    return "never"


def _once_killed(task: Any) -> str:
    if task.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "second"


def _retry_once(task: Any) -> str:
    if not task.request.retries:
        raise task.retry(countdown=0)
    return "finished"


def _raise(error: BaseException) -> Callable[[Any], Any]:
    def body(task: Any) -> None:
        raise error

    return body


#: What the body of `ending` does when told so.
HOW: dict[str, Callable[[Any], Any]] = {
    "finish": lambda task: "finished",
    "finish a step first": _finish_a_step_first,
    "ignore": _raise(Ignore()),
    "ignore with a state": _ignore_with_a_state,
    "reject": _raise(Reject("no", requeue=False)),
    "reject and requeue": _raise(Reject("again", requeue=True)),
    "fail": _raise(Broken("as told")),
    "retry": lambda task: task.retry(countdown=0, max_retries=2),
    "retry with an error": lambda task: task.retry(countdown=0, max_retries=1, exc=Broken("told")),
    "Retry by hand": _raise(Retry()),
    "retry, and publish nothing": lambda task: task.retry(countdown=0, max_retries=2),
    "replace, and publish nothing": lambda task: task.replace(task.si("finish")),
    "retry, and publish another id": _retry_once,
    "sleep": lambda task: time.sleep(LONG_SECONDS),
    "sleep too long": lambda task: time.sleep(LONG_SECONDS),
    "catch the soft limit": _catch_the_soft_limit,
    "sys.exit": lambda task: sys.exit(0),
    "sys.exit with a text": lambda task: sys.exit("out of here"),
    "KeyboardInterrupt": _raise(KeyboardInterrupt()),
    "os._exit": lambda task: os._exit(0),
    "cancelled": _raise(asyncio.CancelledError()),
    "unserialisable": lambda task: object(),
    "unserialisable, ignored": lambda task: object(),
    "unpicklable": lambda task: _raise(Unpicklable("o", "dd"))(task),
    "fail, ignored": _raise(Broken("as told")),
    "once killed, ignored": _once_killed,
    "MemoryError": _raise(MemoryError("none left")),
    "RecursionError": _raise(RecursionError("too deep")),
    "GeneratorExit": _raise(GeneratorExit()),
    "os._exit, ignored": lambda task: os._exit(1),
}


@contextmanager
def deaf() -> Iterator[None]:
    """Ignore SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class SlowToReturn(ReliableTask):
    """Takes its time when its result has been stored."""

    abstract = True

    def on_success(self, *_: Any) -> None:
        time.sleep(60)


class SlowToFail(ReliableTask):
    """Takes its time to say that it failed."""

    abstract = True

    def on_failure(self, *_: Any) -> None:
        time.sleep(HOOK_SECONDS / 3)


class Unpublished(ReliableTask):
    """Publishes nothing from a worker, like a task whose transaction is rolled back."""

    abstract = True

    def apply_async(self, *args: Any, **options: Any) -> Any:
        return None if "READY_KEY" in os.environ else super().apply_async(*args, **options)


class Renamed(ReliableTask):
    """Publishes itself under another id from a body."""

    abstract = True

    def apply_async(self, *args: Any, **options: Any) -> Any:
        if not self.request.called_directly:
            options["task_id"] = uuid()
        return super().apply_async(*args, **options)


class RaisesOnRetry(ReliableTask):
    """Has a hook that raises when the task is to run again."""

    abstract = True

    def on_retry(self, *_: Any) -> None:
        raise Broken("in the hook")


class EndsSlowly(ReliableTask):
    """Its hook comes after Celery has stored the outcome, and needs its object."""

    abstract = True

    def after_return(self, *args: Any) -> None:
        time.sleep(0.5)
        self.app.effects.client.rpush("hooks", self.request.id)


def count_failures(sender: Any, task_id: str, **_: Any) -> None:
    if sender.name == "project.poison":
        sender.app.effects.client.incr(f"task_failure:{task_id}")


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    task = tasks.tasks_of(to)
    task_failure.connect(count_failures, weak=False)

    @task(object_id="how", max_losses=1)
    def ending(self: Any, how: str) -> Any:
        """End so, with an object to itself; the second loss is the last."""
        with to.effects.run(self, how):
            return HOW[how](self)

    @task(object_id="how", max_losses=1, throws=(Broken,))
    def expecting(self: Any, how: str) -> Any:
        """`ending`, which is expected to fail with Broken."""
        with to.effects.run(self, how):
            return HOW[how](self)

    @task(throws=(Broken,), dead_letter="always")
    def expecting_always(self: Any, how: str) -> Any:
        """The same, and a dead letter all the same."""
        with to.effects.run(self, how):
            return HOW[how](self)

    @task(base=Unpublished, max_losses=1)
    def unpublished(self: Any, how: str) -> Any:
        """`ending`, which publishes nothing of what it would publish."""
        with to.effects.run(self, how):
            return HOW[how](self)

    @task(base=Renamed)
    def renamed(self: Any, how: str) -> Any:
        """`ending`, which publishes itself under another id."""
        with to.effects.run(self, how):
            return HOW[how](self)

    @task(object_id="how", autoretry_for=(Broken,), max_retries=2, default_retry_delay=0)
    def autoretried_always(self: Any, how: str) -> None:
        """Fail, and be retried by Celery."""
        with to.effects.run(self, how):
            raise Broken("each time")

    @task(dead_letter=False, time_limit=1)
    def undead(self: Any) -> None:
        """Outlive its time limit."""
        with to.effects.run(self):
            time.sleep(LONG_SECONDS)

    @task(base=SlowToFail, object_id="object_id", time_limit=2)
    def limited_object(self: Any, object_id: str) -> None:
        """Outlive the hard time limit, with an object to itself."""
        with deaf(), to.effects.run(self, object_id) as run:
            tasks._pass_time(run, 30)

    @task(object_id="object_id", on_conflict="wait")
    def stubborn_object(self: Any, object_id: str, seconds: float) -> str:
        """Take so long with an object to itself, whatever anybody says."""
        with deaf(), to.effects.run(self, object_id) as run:
            tasks._pass_time(run, seconds)
        return object_id

    @task(base=RaisesOnRetry)
    def retried_badly(self: Any, name: str) -> str:
        """Run until the test opens the gate of this name; its hook raises if it is stopped."""
        return tasks.gate(self, name)

    @task(base=SlowToReturn, time_limit=2)
    def finished_late(self: Any) -> None:
        """Succeed, and outlive the hard time limit then."""
        with to.effects.run(self):
            pass

    @task(object_id="object_id", on_conflict="wait", time_to_run_seconds=1, max_losses=0)
    def stuck_for_good(self: Any, object_id: str) -> int:
        """Run until the test opens the gate of its id; a later attempt ends at once."""
        with to.effects.run(self, f"{self.name} {object_id}") as run:
            if run.number == 1:
                tasks._wait_at_gate(self, run, self.request.id)
        return int(run.number)

    @task(base=EndsSlowly, object_id="object_id", unique="queued")
    def ends_slowly(self: Any, object_id: str, is_failing: bool) -> str:
        with to.effects.run(self, object_id):
            if is_failing:
                raise Broken("as told")
        return object_id

    def wait_for_others(run: Any, count: int) -> None:
        until = time.monotonic() + TOGETHER_SECONDS
        while len(to.effects.runs()) < count and time.monotonic() < until:
            time.sleep(tasks.TICK_SECONDS)
            run.tick()

    @task()
    def deadly(self: Any, beside: int) -> None:
        """Kill the whole worker in every run; in the first when so many others run with it."""
        run = to.effects.start(self)
        if run.number == 1:
            wait_for_others(run, beside + 1)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    @task()
    def bystander(self: Any, seconds: float) -> str:
        """Run until the worker is killed; then take so long."""
        with to.effects.run(self) as run:
            until = time.monotonic() + (TOGETHER_SECONDS if run.number == 1 else seconds)
            while time.monotonic() < until:
                time.sleep(tasks.TICK_SECONDS)
                run.tick()
        return "unharmed"
