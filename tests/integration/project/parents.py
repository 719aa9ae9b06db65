"""The project's app with tasks whose end the main process has to see to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.signals import task_failure

from celery_reliable import ReliableTask

__all__ = ["add_tasks"]

TICK_SECONDS = 0.05
#: Longer than two looks at the claims.
HOOK_SECONDS = 6.0


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


class Fatal(ReliableTask):
    """Kills its process when its result has been stored, every time."""

    abstract = True

    def on_success(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    def task(**options: Any) -> Any:
        options = {"base": ReliableTask, **options}
        return lambda body: to.task(
            body, bind=True, shared=False, name=f"project.{body.__name__}", **options
        )

    def tick(run: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(TICK_SECONDS)
            run.tick()

    @task(base=SlowToFail, object_id="object_id", time_limit=2)
    def limited_object(self: Any, object_id: str) -> None:
        """Outlive the hard time limit, with an object to itself."""
        with deaf(), to.effects.run(self, object_id) as run:
            tick(run, 30)

    @task(object_id="object_id", on_conflict="retry")
    def stubborn_object(self: Any, object_id: str, seconds: float) -> str:
        """Take so long with an object to itself, whatever anybody says."""
        with deaf(), to.effects.run(self, object_id) as run:
            tick(run, seconds)
        return object_id

    @task(object_id="object_id", on_conflict="retry")
    def unwinding_object(self: Any, object_id: str, seconds: float) -> str:
        """The same, but when told to stop, only clean up for so long."""
        with to.effects.run(self, object_id) as run:
            try:
                tick(run, seconds)
            except SystemExit:
                with deaf():
                    tick(run, seconds)
                raise
        return object_id

    @task(base=SlowToReturn, object_id="object_id")
    def kept_object(self: Any, object_id: str) -> None:
        """Succeed, and keep the object for as long as the test wants."""
        with to.effects.run(self, object_id):
            pass

    @task(base=SlowToReturn, object_id="object_id", unique="queued", once_for_seconds=60)
    def once_object(self: Any, object_id: str) -> None:
        """Succeed, once in a minute, and keep the process for as long as the test wants."""
        with to.effects.run(self, object_id):
            pass

    @task(base=Fatal)
    def fatal(self: Any) -> None:
        """Succeed, and kill the process then."""
        with to.effects.run(self):
            pass

    @task(time_limit=1)
    def limited_slowly(self: Any) -> None:
        """Outlive the hard time limit; a receiver of the failure takes its time."""
        with to.effects.run(self) as run:
            tick(run, 30)

    def receive_slowly(sender: Any, **_: Any) -> None:
        if sender.name == "project.limited_slowly":
            sender.app.effects.client.incr("failures-told")
            time.sleep(HOOK_SECONDS)

    task_failure.connect(receive_slowly, weak=False)

    def count_failures(sender: Any, task_id: str, **_: Any) -> None:
        sender.app.effects.client.incr(f"task_failure:{task_id}")

    task_failure.connect(count_failures, weak=False)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
