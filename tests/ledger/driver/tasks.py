"""The app of a world and its tasks, whose bodies do what the world planned for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, Task
from celery.app.registry import TaskRegistry
from celery.exceptions import NotRegistered

from celery_reliable import ReliableTask

NAMESPACE = "world"
LEASE_SECONDS = 10.0
SWEEP_SECONDS = 2.5
QUEUED_SECONDS = 17.5
MAX_LOSSES = 3
TIME_TO_RUN_SECONDS = 5.0
#: Between two beginnings of the task whose rate is limited.
PACE_SECONDS = 5.0
QUEUE = "celery"
#: What the queue's name ends with that one worker alone consumes.
OWN = ".dq2"

#: The tasks that work on an object.
PLACED = ("placed", "placed_brief", "unique", "once")

#: Tasks that wait in line for one of so many places of their object.
LINED = {"single": 1, "lined": 2, "shared": 2}

#: What a body does: the world sets it; it is given the task and its nonce.
Body = Callable[[Any, str], Any]


class Broken(Exception):
    """What a body raises that was to fail."""


class _Known(TaskRegistry):  # type: ignore[misc]
    """The tasks of an app, as the process knows them that asks."""

    lacks: Callable[[], str] = str

    def __getitem__(self, name: str) -> Any:
        if name == _Known.lacks():
            raise NotRegistered(name)
        return dict.__getitem__(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        found = dict.get(self, name, default)
        return default if name == _Known.lacks() else found

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) and name != _Known.lacks()


def known_by(lacks: Callable[[], str]) -> None:
    """Let *lacks* tell which task the process that asks has no code of."""
    _Known.lacks = staticmethod(lacks)  # type: ignore[assignment]


class World(Celery):  # type: ignore[misc]
    """An app that tells the driver's time, and asks the driver what its bodies do."""

    body: Body
    time: Callable[[], Any]

    def now(self) -> Any:
        return self.time()


def make_app(port: int, *, is_apart: bool) -> World:
    """Make an app; *is_apart*: with its queues and results away from the ledger."""
    here = f"redis://127.0.0.1:{port}/0"
    there = f"redis://127.0.0.1:{port}/1" if is_apart else here
    app = World(f"driver-{is_apart}", broker=there, backend=there, set_as_current=False)
    app.conf.update(
        result_expires=0,
        # For how long plain tasks stay with who may still run them.
        broker_transport_options={"visibility_timeout": 30},
        broker_pool_limit=500,
        task_publish_retry_policy={"max_retries": 2, "interval_start": 0.1},
        worker_prefetch_multiplier=2,
        reliable={
            "REDIS_URL": here,
            "NAMESPACE": NAMESPACE,
            "LEASE_SECONDS": LEASE_SECONDS,
            "SWEEP_SECONDS": SWEEP_SECONDS,
            "QUEUED_SECONDS": QUEUED_SECONDS,
            "MAX_LOSSES": MAX_LOSSES,
        },
    )

    def define(name: str, base: Any = ReliableTask, **options: Any) -> None:
        def run(self: Any, nonce: str, place: str = "") -> Any:
            return self.app.body(self, nonce)

        app.task(run, bind=True, shared=False, base=base, name=name, max_retries=None, **options)

    define("work")
    define("brief", time_to_run_seconds=TIME_TO_RUN_SECONDS)
    define("placed", object_id="place", on_conflict="wait")
    define(
        "placed_brief",
        object_id="place",
        on_conflict="wait",
        time_to_run_seconds=TIME_TO_RUN_SECONDS,
    )
    define("unique", object_id="place", unique="queued", on_conflict="wait")
    define("once", object_id="place", once_for_seconds=5, on_conflict="wait")
    define("light", dead_letter=False)
    define("paced", rate=f"{60 / PACE_SECONDS:g}/m")
    define("single", object_id="place", on_conflict="wait")
    define("lined", object_id="place", at_most=LINED["lined"], on_conflict="wait")
    define("shared", object_id="place", at_most=LINED["shared"], on_conflict="wait", place="queued")
    define("plain", base=Task, acks_late=True)
    app.finalize()
    # What has read them by now has them kept: both are replaced.
    app.tasks = app._tasks = _Known(app._tasks)
    app.set_current()
    return app
