"""The processes of a drill, in sessions of their own: nothing else is ever sent a signal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celery_reliable.exceptions import ReliableError
from celery_reliable.operations.drills.sessions import Session

__all__ = ["RELEASE_NAME", "TOLD_VARIABLE", "DrillFailed", "Processes", "Worker"]

#: Where a process of a drill finds what it is told.
TOLD_VARIABLE = "CELERY_RELIABLE_DRILL"
#: When a file of this name is there, tasks that hold end.
RELEASE_NAME = "release"

_MODULE = "celery_reliable.contrib.drill"
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.1
_LOG_LINES = 15


class DrillFailed(ReliableError):
    """A drill could not be done."""


class Worker(Session):
    """A worker of a drill."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], folder: Path) -> None:
        super().__init__(process)
        self.name = name
        self._process = process
        self._folder = folder

    @property
    def is_ready(self) -> bool:
        """Whether it consumes.  Raises DrillFailed when it has ended instead."""
        if not self.is_running:
            raise DrillFailed(
                f"A worker of the drill ended with {self._process.returncode}:\n" + self._tail()
            )
        return (self._folder / f"{self.name}.ready").exists()

    def kill_child(self, pid: int) -> None:
        """SIGKILL to one of its pool processes.  Raises DrillFailed if it is none."""
        try:
            super().kill_child(pid)
        except ValueError:
            raise DrillFailed(f"Process {pid} is no pool process of this drill.") from None

    def stop(self) -> None:
        """End it as a deployment does; with SIGKILL when that takes too long."""
        if self.is_running:
            self.thaw()
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def _tail(self) -> str:
        lines = (self._folder / f"{self.name}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


class Processes:
    """Starts the processes of one drill, and ends them.

    Args:
        app_path: where they find the app, as for `celery -A`.
        folder: where they write what they do.
        queue: the drill's own.
    """

    def __init__(self, app_path: str, folder: Path, queue: str) -> None:
        self._app_path = app_path
        self.folder = folder
        self.queue = queue
        self._workers: list[Worker] = []
        self._publishers: list[subprocess.Popen[bytes]] = []

    def start_worker(self, concurrency: int = 2) -> Worker:
        """Start one.  Ask it whether it is ready."""
        name = f"drill-{os.getpid()}-{len(self._workers)}"
        process = self._start(name, does="work", name=name, concurrency=concurrency)
        self._workers.append(Worker(name, process, self.folder))
        return self._workers[-1]

    def publish(
        self,
        task: str,
        *arguments: float,
        count: int = 1,
        pause_seconds: float = 0.0,
    ) -> subprocess.Popen[bytes]:
        """Start a process that publishes so many."""
        process = self._start(
            "publisher",
            does="publish",
            task=task,
            arguments=arguments,
            count=count,
            pause_seconds=pause_seconds,
        )
        self._publishers.append(process)
        return process

    def release(self) -> None:
        """Let tasks that hold end."""
        (self.folder / RELEASE_NAME).touch()

    def end(self) -> None:
        """End all of them."""
        for publisher in self._publishers:
            if publisher.poll() is None:
                publisher.kill()
            publisher.wait()
        for worker in self._workers:
            worker.stop()

    def _start(self, log: str, **told: Any) -> subprocess.Popen[bytes]:
        paths: Sequence[str] = [path or str(Path.cwd()) for path in sys.path]
        told |= {"app": self._app_path, "folder": str(self.folder), "queue": self.queue}
        told["drill_pid"] = os.getpid()
        with (self.folder / f"{log}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", _MODULE],
                env={**os.environ, TOLD_VARIABLE: json.dumps({**told, "paths": paths})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def wait_until(condition: Any, until: float, what: str) -> None:
    """Ask again and again.  Raises DrillFailed when it is not so by that monotonic time."""
    while not condition():
        if time.monotonic() > until:
            raise DrillFailed(f"In time there was not {what}.")
        time.sleep(_POLL_SECONDS)
