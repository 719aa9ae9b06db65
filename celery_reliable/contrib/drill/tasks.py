"""The tasks of a drill.  Only its own processes know them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery

from celery_reliable.operations.drills import LOG_NAME, RELEASE_NAME
from celery_reliable.task import ReliableTask

__all__ = ["note", "register"]

_TICK_SECONDS = 0.1


def note(folder: Path, kind: str, **fields: Any) -> None:
    """Write a row of the drill's log, with the time of the one clock that this machine has."""
    line = json.dumps({"at": time.monotonic(), "kind": kind, **fields}) + "\n"
    # One write to the end of a file: rows of several processes do not mix.
    log = os.open(folder / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, line.encode())
    finally:
        os.close(log)


def register(app: Celery) -> None:
    """Give the app of this process the tasks `reliable_drill.*`."""

    def task(body: Any) -> None:
        name = f"reliable_drill.{body.__name__}"
        app.task(body, bind=True, base=ReliableTask, shared=False, name=name, ignore_result=True)

    @task
    def hold(self: Any, folder: str, seconds: float) -> None:
        """Run, the first time, until all are released, and for so long at most."""
        with _run(self, Path(folder)) as tick:
            until = time.monotonic() + (seconds if self.attempt == 1 else 0)
            while time.monotonic() < until and not (Path(folder) / RELEASE_NAME).exists():
                tick()

    @task
    def work(self: Any, folder: str, seconds: float) -> None:
        """Take so long."""
        with _run(self, Path(folder)) as tick:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                tick()

    @task
    def poison(self: Any, folder: str) -> None:
        """Kill the process that runs it, every time."""
        with _run(self, Path(folder)):
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _run(task: Any, folder: Path) -> Iterator[Any]:
    run = uuid4().hex
    about = {"task": task.request.id, "attempt": task.attempt}
    about |= {"worker": task.request.hostname, "pid": os.getpid()}
    note(folder, "begin", run=run, **about)

    def tick() -> None:
        time.sleep(_TICK_SECONDS)
        note(folder, "alive", run=run)

    yield tick
    note(folder, "end", run=run)
