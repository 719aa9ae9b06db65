"""The app of the soak's workers: the tests' project, with more kinds of tasks (`celery -A`)."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import current_task
from celery.signals import before_task_publish, worker_ready

from celery_reliable import ReliableTask
from proof.cuts.log import Log
from tests.integration.project.factory import Settings, create_app

__all__ = ["create_soak_app"]

_TICK_SECONDS = 0.025


def create_soak_app(settings: Settings) -> Any:
    """Make the app; whatever its process publishes is in the log."""
    app = create_app(settings)
    log = Log(app.effects.client)

    def before(headers: dict[str, Any], **_: Any) -> None:
        # A retry is no publication: its attempts are counted on.
        if not current_task or current_task.request.id != headers["id"]:
            log.publish(headers["id"])

    before_task_publish.connect(before, weak=False)
    _add_tasks(app)
    return app


def _add_tasks(to: Any) -> None:
    def task(name: str, **options: Any) -> None:
        to.task(
            _take, bind=True, base=ReliableTask, shared=False, name=f"project.{name}", **options
        )

    task("paced", rate="4/s")
    task("on_gpu", only_workers=("gpu-*",))
    task("only_one", object_id="name", unique="queued")


def _take(self: Any, name: str, seconds: float) -> str:
    """Take so long; of an object, if the task has one."""
    has_object = self.name == "project.only_one"
    with self.app.effects.run(self, name if has_object else None) as run:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(_TICK_SECONDS)
            run.tick()
    return name


# In a process of the soak, not in who starts it.
if "READY_KEY" in os.environ:
    app = create_soak_app(Settings.from_environ(os.environ))
    app.set_current()

    def _tell_that_it_is_up(**_: Any) -> None:
        app.effects.client.set(os.environ["READY_KEY"], os.getpid())

    worker_ready.connect(_tell_that_it_is_up, weak=False)
