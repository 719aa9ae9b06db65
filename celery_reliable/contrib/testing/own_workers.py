"""Real workers of a test's app, as processes that are ended with the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from celery_reliable.contrib.testing.held import WORKER_VARIABLE
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.operations import Desk

__all__ = ["OwnWorkers"]

_LOG_LINES = 30


class OwnWorkers:
    """The workers that one test has started.

    Args:
        folder: where they write their logs.
        app_path: where they find the app, as for `celery -A`; without it none is started.
    """

    def __init__(self, folder: Path, app_path: str) -> None:
        self._folder = folder
        self._app_path = app_path
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, conf: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Start one with these settings, with one pool process.  Raises ConfigurationError."""
        if not self._app_path:
            raise ConfigurationError(
                "A worker is a process of its own, and has to be told where the app is: say "
                "`reliable_app = proj.celery:app` in pytest's configuration."
            )
        number = len(self._started)
        told = {
            "app": self._app_path,
            "conf": conf,
            "databases": _databases(),
            "folder": str(self._folder),
            "name": f"test{number}@localhost",
            "paths": [path or str(Path.cwd()) for path in sys.path],
        }
        with self._log_of(number).open("wb") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery_reliable.contrib.testing.worker"],
                env={**os.environ, WORKER_VARIABLE: json.dumps(told)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(worker)
        return worker

    def has_one_that_runs(self) -> bool:
        """Whether one of them has not ended."""
        return any(worker.poll() is None for worker in self._started)

    def is_another_alive(self, desk: Desk) -> bool:
        """Whether the ledger knows of a living worker that is none of them."""
        # Those that were killed have a lease for some time yet.
        killed = {worker.pid for worker in self._started}
        views = desk.workers.all(with_broker=False)
        return any(one.state == "alive" and one.pid not in killed for one in views)

    def has_failed(self) -> bool:
        """Whether the last one has ended otherwise than by SIGKILL."""
        return bool(self._started) and self._started[-1].poll() not in (None, -signal.SIGKILL)

    def kill(self, pid: int) -> None:
        """SIGKILL to the one whose main process that is, and to its pool processes."""
        _kill(next(one for one in self._started if one.pid == pid))

    def end(self) -> None:
        """SIGKILL to all of them."""
        for worker in self._started:
            _kill(worker)

    def log(self) -> str:
        """The end of what the last one wrote."""
        path = self._log_of(len(self._started) - 1)
        lines = path.read_text(errors="replace").splitlines() if self._started else []
        return "\n".join(["The end of the log of the last worker:", *lines[-_LOG_LINES:]])

    def _log_of(self, number: int) -> Path:
        return self._folder / f"worker-{number}.log"


def _kill(worker: subprocess.Popen[bytes]) -> None:
    # Once it is reaped, its id may be another process's.
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def _databases() -> dict[str, str]:
    """Return the names of this process's databases where it is one of Django, whose tests have
    databases of their own.  Raises ConfigurationError for one that another process cannot see.
    """
    settings = sys.modules.get("django.conf")
    if settings is None or not settings.settings.configured:
        return {}
    from django.db import connections

    found = {one.alias: str(one.settings_dict["NAME"]) for one in connections.all()}
    hidden = [alias for alias, name in found.items() if ":memory:" in name or "mode=memory" in name]
    if hidden:
        raise ConfigurationError(
            f"The database {hidden[0]!r} of the tests is in the memory of this process, where a "
            'worker cannot see it. Give it a file: DATABASES["default"]["TEST"] = {"NAME": ...}.'
        )
    return found
