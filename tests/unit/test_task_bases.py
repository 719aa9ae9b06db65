"""A reliable task is a task of its app, whichever way it got its base."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, Task, _state, shared_task

from celery_reliable import ReliableTask


class Base(ReliableTask):
    """A base of a project's own."""

    abstract = True


class Written(ReliableTask):
    """A task that is a class."""

    def run(self) -> None: ...


def body() -> None: ...


WAYS: dict[str, Callable[[Celery], Any]] = {
    "ours": lambda app: app.task(body, name="bases.ours", base=ReliableTask, shared=False),
    "own": lambda app: app.task(body, name="bases.own", base=Base, shared=False),
    "class": lambda app: app.register_task(Written()),
    "shared": lambda app: shared_task(name="bases.shared", base=Base)(body),
}


def make_app(**options: Any) -> Celery:
    """Return an app whose settings ask for what a reliable task does not do."""
    app = Celery("bases", broker="redis://127.0.0.1:1", fixups=(), **options)
    app.conf.update(task_acks_late=False, task_reject_on_worker_lost=False)
    return app


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no app of another test get the shared task."""
    monkeypatch.setattr(_state, "_on_app_finalizers", {*_state._on_app_finalizers})


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app with Celery's own class of tasks."""
    with make_app() as made:
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_a_reliable_task_is_an_instance_of_its_apps_task(way: str, app: Celery) -> None:
    task = WAYS[way](app)
    assert isinstance(task, app.Task)
    assert isinstance(task, ReliableTask)
    # Ours come first.
    assert task.acks_late
    assert task.reject_on_worker_lost
    order = type(app.tasks[task.name]).__mro__
    assert order.index(ReliableTask) < order.index(app.Task)
    # The class that many tasks share is as it was written.
    assert Base.__bases__ == (ReliableTask,)


class Own(Task):
    """A class of a project's own for tasks that name no base."""

    is_own = True


def test_a_task_that_names_its_base_does_not_get_the_apps_own_one() -> None:
    with make_app(task_cls=Own) as app:
        task: Any = app.task(body, name="bases.ours", base=ReliableTask, shared=False)
        assert not hasattr(task, "is_own")

        class Both(ReliableTask, app.Task):  # type: ignore[misc, name-defined]
            abstract = True

        both: Any = app.task(body, name="bases.both", base=Both, shared=False)
        assert isinstance(both, app.Task)
        assert both.is_own
        assert both.acks_late
