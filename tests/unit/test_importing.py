"""An app and the package in whichever order, import paths that others hold, and bases of tasks."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, _state, shared_task
from celery.utils.imports import symbol_by_name

from celery_reliable import ReliableTask
from tests.support.processes import run_python
from tests.support.redis_server import RedisServer

ASK = """
app.finalize()
import celery_reliable
def body(): ...
own, sweep = app.task(body, name="app.own"), app.tasks["celery_reliable.sweep"]
print(own.is_reliable, isinstance(sweep, celery_reliable.ReliableTask), sweep.name)
"""


@pytest.mark.parametrize(
    "first",
    [
        'app = Celery("proj", task_cls="celery_reliable:ReliableTask")',
        'app = Celery("proj", task_cls="celery_reliable.task:ReliableTask")',
        'class App(Celery):\n    task_cls = "celery_reliable:ReliableTask"\napp = App("proj")',
    ],
)
def test_an_app_may_name_the_base_of_its_tasks(first: str) -> None:
    said = run_python("-c", f"from celery import Celery\n{first}\n{ASK}")
    assert (said.stdout, said.stderr) == ("True False celery_reliable.sweep\n", "")


#: A web process, which publishes and does nothing else.
PUBLISHING = """
import sys, celery, celery_reliable
app = celery.Celery("shop", broker=sys.argv[1])
@app.task(base=celery_reliable.ReliableTask, name="shop.add")
def add(): ...
app.tasks["shop.add"].delay()
print(*(name for name in sys.modules if name.partition(".")[0] == "celery_reliable"))
"""

#: At most so many modules of the package has a process that only publishes.
_MOST_MODULES = 105


def test_a_process_that_only_publishes_loads_nothing_of_workers_and_operators(
    tmp_path: Path,
) -> None:
    with RedisServer(tmp_path) as server:
        said = run_python("-c", PUBLISHING, server.url())
        assert server.client().llen("celery") == 1, said.stderr

    loaded = said.stdout.split()
    packages = {".".join(name.split(".")[1:2]) for name in loaded}
    assert "publishing" in packages
    assert packages & {"contrib", "doctor", "findings", "operations", "recovery", "worker"} == set()
    assert len(loaded) <= _MOST_MODULES


# -- paths in settings and in users' code

#: In settings (`broker_transport`, `task_cls`, a task's `Request`).
HELD = [
    "celery_reliable.transport:Transport",
    "celery_reliable.transport:SentinelTransport",
    "celery_reliable.request:ReliableRequest",
    "celery_reliable.task:ReliableTask",
]


@pytest.mark.parametrize("path", HELD)
def test_a_path_that_is_held_elsewhere_leads_to_what_it_names(path: str) -> None:
    found, name = symbol_by_name(path), path.partition(":")[2]
    assert getattr(found, "__name__", None) == name or found.name == name


def test_the_paths_that_the_package_itself_gives_away_are_of_that_kind() -> None:
    from celery_reliable.broker import transport_for

    given = {transport_for(scheme) for scheme in ("redis", "rediss", "sentinel")}
    assert given | {ReliableTask.Request} <= set(HELD)


def test_the_command_is_found_by_celery() -> None:
    (command,) = metadata.entry_points(group="celery.commands", name="reliable")
    assert command.load() is symbol_by_name("celery_reliable.operations.cli:reliable")


# -- a reliable task is a task of its app, whichever way it got its base


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
