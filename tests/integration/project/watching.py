"""The project's app, whose processes write down what its signals tell them, and who told; and tasks
that lose their attempt on the way.
"""

from __future__ import annotations

import json
import os
import sys
from types import FrameType
from typing import Any

from celery.backends.redis import RedisBackend

from celery_reliable import signals
from celery_reliable.app import reliable_of
from celery_reliable.context import running
from celery_reliable.model import Cause
from tests.integration.project.tasks import tasks_of

__all__ = ["TOLD", "add_tasks", "note"]

#: Where that is, in the effects' database.
TOLD = "told"

#: Nobody looks at what was taken away before a test is over.
_LATER_MS = 600_000


class Reluctant(RedisBackend):
    """A result backend that is away when it is first asked to store a success."""

    def mark_as_done(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("away")


def take_away() -> None:
    """Have the attempt that runs here lost, as a sweeper would that holds its worker for dead."""
    attempt = running.get()
    if attempt is not None:
        ledger = reliable_of(_made[-1]).ledger
        ledger.lose(attempt.claim, Cause.WORKER_LOST, max_losses=3, due_in_ms=_LATER_MS)


def _object(seconds: float) -> str:
    take_away()
    return "object"


#: The app of this process.
_made: list[Any] = []


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""
    _made.append(to)

    def task(name: str, body: Any, **options: Any) -> None:
        tasks_of(to)(name=f"project.{name}", **options)(body)

    def taken(self: Any, seconds: float) -> None:
        take_away()

    def taken_before(self: Any, seconds: float) -> None:
        raise AssertionError("it has no attempt any more")

    task("taken", taken)
    task("taken_silently", taken, ignore_result=True)
    # What a user's hook may do comes before the end: nobody settles it with the next taking.
    task("taken_with_hook", taken, ignore_result=True, after_return=lambda *_: None)
    task("taken_in_time", taken, time_to_run_seconds=60)
    task("taken_while_away", taken, backend=Reluctant(app=to, url=to.conf.result_backend))
    task("taken_before", taken_before, object_id=_object)


def note(signal: Any, sender: Any, **facts: Any) -> None:
    """Write down what a signal tells, and the function of the package that told it."""
    facts.pop("traceback", None)
    row = {"signal": signal.name, "sender": str(sender), "teller": _teller(), **facts}
    _made[-1].effects.client.rpush(TOLD, json.dumps(row, default=str))


def _teller() -> tuple[str, str]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = str(frame.f_globals["__name__"])
        if module.startswith("celery_reliable.") and ".events" not in module:
            return module, frame.f_code.co_name
        frame = frame.f_back
    raise AssertionError("nobody of the package told")


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
    for one in signals.__all__:
        getattr(signals, one).connect(note, weak=False)
