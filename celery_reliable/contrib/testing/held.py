"""Tasks of a worker that stop where a test wants to kill them.

The two sides meet in a folder.  The test makes a file that is named after a task's id and a moment;
the process that comes to this moment says so in another file, and goes no further.
"""

from __future__ import annotations

import functools
import json
import os
import time
from pathlib import Path
from typing import Any, Literal

__all__ = ["WORKER_VARIABLE", "Held", "Moment", "hold"]

#: Of the environment: what a worker of a test is told, as JSON.
WORKER_VARIABLE = "CELERY_RELIABLE_TEST_WORKER"

#: Before the body, or after it: it has done its work, and nothing is settled.
Moment = Literal["begins", "ended"]

#: A test that has forgotten it has failed long ago.
_LONGEST_SECONDS = 120.0
_LOOK_SECONDS = 0.02


class Held:
    """One task that is to stop at a moment."""

    def __init__(self, folder: Path, task_id: str, moment: Moment) -> None:
        self._asked = folder / f"{task_id}.{moment}"
        self._told = folder / f"{task_id}.{moment}.pid"

    def ask(self) -> None:
        """Ask that it stops there."""
        self._asked.touch()

    def process(self) -> tuple[int, int] | None:
        """Return the process that stands there, and its parent; None before."""
        if not self._told.exists():
            return None
        pid, parent = json.loads(self._told.read_text())
        return int(pid), int(parent)

    def let_go(self) -> None:
        """Let the next attempt pass."""
        self._asked.unlink(missing_ok=True)

    def stand(self) -> None:
        """Stop here if that was asked for; by the process that runs the task."""
        if not self._asked.exists():
            return
        new = self._told.with_suffix(".new")
        new.write_text(json.dumps([os.getpid(), os.getppid()]))
        new.replace(self._told)
        until = time.monotonic() + _LONGEST_SECONDS
        while self._asked.exists() and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)


def hold(task: Any, folder: Path) -> None:
    """Let a task of this process stop where it is asked to."""
    body = task.run

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        Held(folder, task.request.id, "begins").stand()
        found = body(*args, **kwargs)
        Held(folder, task.request.id, "ended").stand()
        return found

    task.run = run
