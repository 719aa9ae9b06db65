"""A reliable task is a task of its app, whichever way it got its base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, _state, shared_task

from celery_reliable import ReliableTask


class Base(ReliableTask):
    """A base of a project's own."""

    abstract = True


class Written(ReliableTask):
    """A task that is a class."""

    def run(self) -> None: ...


def body() -> None: ...


WAYS: dict[str, Callable[[Celery], Any]] = {
    "own": lambda app: app.task(body, name="bases.own", base=Base, shared=False),
    "class": lambda app: app.register_task(Written()),
    "shared": lambda app: shared_task(name="bases.shared", base=Base)(body),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_reliable_task_is_an_instance_of_its_apps_task(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No app of another test gets the shared task.
    monkeypatch.setattr(_state, "_on_app_finalizers", {*_state._on_app_finalizers})
    with Celery("bases", broker="redis://127.0.0.1:1", fixups=()) as app:
        app.conf.update(task_acks_late=False, task_reject_on_worker_lost=False)
        task = WAYS[way](app)
        assert isinstance(task, app.Task)
        assert isinstance(task, ReliableTask)
        # Ours come first.
        assert task.acks_late
        assert task.reject_on_worker_lost
        # The class that many tasks share is as it was written.
        assert Base.__bases__ == (ReliableTask,)
