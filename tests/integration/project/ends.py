"""The project's app with a task that ends in every way that is no success, and some beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from celery_reliable import ReliableTask
from tests.integration.project.tasks import Broken

__all__ = ["add_tasks"]

LONG_SECONDS = 30.0


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
    "memory": _raise(MemoryError("none left")),
    "os._exit, ignored": lambda task: os._exit(1),
}


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""

    def task(**options: Any) -> Any:
        options = {"base": ReliableTask, **options}
        return lambda body: to.task(
            body, bind=True, shared=False, name=f"project.{body.__name__}", **options
        )

    @task(object_id="how", max_losses=1)
    def ending(self: Any, how: str) -> Any:
        """End so, with an object to itself; the second loss is the last."""
        with to.effects.run(self, how):
            return HOW[how](self)

    @task(object_id="how", autoretry_for=(Broken,), max_retries=2, default_retry_delay=0)
    def autoretried(self: Any, how: str) -> None:
        """Fail, and be retried by Celery."""
        with to.effects.run(self, how):
            raise Broken("each time")

    @task(dead_letter=False, time_limit=1)
    def limited(self: Any) -> None:
        """Outlive its time limit."""
        with to.effects.run(self):
            time.sleep(LONG_SECONDS)

    @task(rate_limit="30/m")
    def rated(self: Any) -> None:
        """Be the one in two seconds."""
        with to.effects.run(self):
            pass

    @task(rate_limit="1/h")
    def rare(self: Any) -> None:
        """Be the first in this hour, or wait."""
        with to.effects.run(self):
            pass


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
