"""Tasks as users write them: hooks without super, limits, odd results."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from celery import Task
from celery.exceptions import Reject
from celery.signals import task_postrun
from celery.worker.request import Request

from celery_reliable import ReliableTask
from celery_reliable.request import ReliableRequest
from tests.integration.project import tasks

__all__ = ["SLOW", "add_tasks"]


#: A trap: who hears of the end of each task takes its time.
SLOW = "worker unwinds slowly"


class Unsayable(Exception):
    """Raises another error when it is shown."""

    def __str__(self) -> str:
        raise ValueError("not even this")


class Hooked(ReliableTask):
    """Overrides every hook, and calls none of ours."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        self.app.effects.client.rpush("hooks", f"before_start {self.attempt}")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        self.app.effects.client.rpush("hooks", "on_success")

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self.app.effects.client.rpush("hooks", "on_failure")

    def after_return(self, *args: Any) -> None:
        self.app.effects.client.rpush("hooks", "after_return")


class Seen:
    """Notes what Celery calls of a request."""

    def on_accepted(self: Any, pid: int, time_accepted: float) -> None:
        self.note("accepted")
        super().on_accepted(pid, time_accepted)

    def on_failure(self: Any, exc_info: Any, *args: Any, **kwargs: Any) -> None:
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        self.note(f"failed {type(error).__name__}")
        super().on_failure(exc_info, *args, **kwargs)

    def on_retry(self: Any, exc_info: Any) -> None:
        self.note("retried")
        super().on_retry(exc_info)

    def acknowledge(self: Any) -> None:
        self.note("acknowledged")
        super().acknowledge()

    def note(self: Any, what: str) -> None:
        self.app.effects.client.rpush("seen", json.dumps([self.id, what]))


class SeenRequest(Seen, ReliableRequest):
    """One of ours."""


class PlainRequest(Seen, Request):
    """One of Celery's."""


def unwind_slowly(task: Any, **_: Any) -> None:
    if task.name == "project.replaced":
        time.sleep(1)


def add_tasks(to: Any) -> None:  # noqa: C901 - one small task after another
    """Give an app of `create_app` the tasks of this module."""

    task = tasks.tasks_of(to)
    if os.environ.get("TRAP") == SLOW:
        task_postrun.connect(unwind_slowly, weak=False)

    @task(base=Hooked)
    def hooked(self: Any, kills: int) -> str:
        with to.effects.run(self) as run:
            if run.number <= kills:
                os.kill(os.getpid(), 9)
        return "hooked"

    @task(autoretry_for=(ValueError,), max_retries=2, default_retry_delay=0)
    def autoretried(self: Any, failures: int) -> str:
        with to.effects.run(self) as run:
            if run.number <= failures:
                raise ValueError(run.number)
        return "autoretried"

    @task()
    def rejecting(self: Any, requeue_first: bool) -> None:
        with to.effects.run(self) as run:
            if requeue_first and run.number == 1:
                raise Reject("again", requeue=True)
            if requeue_first:
                return
            raise Reject("no", requeue=False)

    @task()
    def unwinding(self: Any, seconds: float) -> str:
        with to.effects.run(self) as run:
            try:
                if run.number == 1:
                    raise self.retry(countdown=0)
            finally:
                if run.number == 1:
                    time.sleep(seconds)
        return f"run {run.number}"

    for name, cls, base in (
        ("seen", SeenRequest, ReliableTask),
        ("plain_seen", PlainRequest, Task),
    ):
        path = f"{__name__}:{cls.__name__}"
        task(name=f"project.{name}", base=base, acks_late=True, Request=path)(tasks.follow)

    @task(base=Task, acks_late=True)
    def plain_late(self: Any, gate: str) -> str:
        return str(tasks.gate(self, gate))

    @task(ignore_result=True)
    def silent(self: Any, kills: int) -> None:
        with to.effects.run(self) as run:
            if run.number <= kills:
                os.kill(os.getpid(), 9)

    @task(dead_letter=False)
    def undeadly(self: Any) -> None:
        with to.effects.run(self):
            raise ValueError("no letter, please")

    @task(max_losses=1)
    def fragile(self: Any) -> None:
        to.effects.start(self)
        os.kill(os.getpid(), 9)

    @task(serializer="pickle")
    def pickled(self: Any, what: Any) -> str:
        with to.effects.run(self) as run:
            if run.number == 1:
                os.kill(os.getpid(), 9)
        return f"{what}"

    @task(time_to_run_seconds=2)
    def stuck_once(self: Any) -> str:
        with to.effects.run(self) as run:
            if run.number == 1:
                time.sleep(60)
        return f"run {run.number}"

    @task()
    def told_limits(self: Any, before: Any, retries: int = 0) -> list[float | None]:
        """What is left of its time to run: before and after a touch, behind what was before."""
        with to.effects.run(self) as run:
            if run.number <= retries:
                raise self.retry(countdown=0)
            left = self.seconds_left
            time.sleep(0.05)
            assert self.touch()
            return [*(before or []), left, self.seconds_left]

    @task(time_to_run_seconds=12)
    def hurried(self: Any, seconds: float) -> str:
        with to.effects.run(self):
            time.sleep(seconds)
        return "within its time"

    @task(time_to_run_seconds=2)
    def touching(self: Any, seconds: float) -> str:
        with to.effects.run(self):
            for _ in range(int(2 * seconds)):
                time.sleep(0.5)
                assert self.seconds_left is not None
                assert self.touch()
        return "touched"

    @task()
    def unsayable(self: Any, how: str) -> None:
        with to.effects.run(self):
            if how == "surrogate":
                raise FileNotFoundError(os.fsdecode(b"letter-\xff.txt"))
            raise Unsayable
