"""The thread of a worker's main process that says in a file whether the worker lives and is ready.

Probes read it (`celery_reliable_probe`), which import nothing of this.  Only with PROBE_DIRECTORY.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Protocol

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.log import logger
from celery_reliable.native_threads import NativeThread
from celery_reliable_probe import SUFFIX, identity_of, is_there, name_of

__all__ = ["Signs"]

_EVERY_SECONDS = 1.0
#: What others left, and nobody has touched for so long, is nobody's.  Of a process in another
#: container nothing else can be told.
_LEFT_SECONDS = 3600.0
_STOP_SECONDS = 2.0


class Told(Protocol):
    """What is said of a worker."""

    def why_not_alive(self) -> str:
        """Why only a new start can help it; empty while it lives."""

    def why_not_ready(self) -> str:
        """Why it takes no task just now; empty when it would."""


class Signs(NativeThread):
    """Writes one file a second, also while the main loop stands or waits for a server.

    It is written anew and renamed, so that nobody reads half of it.
    """

    def __init__(
        self, directory: str, *, nodename: str, pid: int, lease_seconds: float, told: Told
    ) -> None:
        """Say it for the first time.  Raises ConfigurationError where that cannot be written."""
        super().__init__("celery-reliable-signs")
        self._path = os.path.join(directory, name_of(nodename, pid))
        self._told = told
        self._always = {
            "nodename": nodename,
            "identity": identity_of(pid),
            "fresh_seconds": lease_seconds,
        }
        self._has_failed = False
        try:
            os.makedirs(directory, exist_ok=True)
            _clear(directory)
            self._write()
        except OSError as exc:
            raise ConfigurationError(
                f"PROBE_DIRECTORY is {directory!r}, where this worker cannot write: "
                f"{exc.strerror}. Name a directory of its user's, in memory if there is one."
            ) from exc

    def run(self) -> None:
        """Say it until told to stop."""
        while not self.stop_asked(_EVERY_SECONDS):
            try:
                self._write()
                self._has_failed = False
            except OSError as exc:
                # Probes see that it says nothing.
                if not self._has_failed:
                    logger.warning("sign_not_written path=%s error=%s", self._path, exc)
                self._has_failed = True

    def stop(self) -> None:
        """End the thread, and remove the file: there is no such worker any more."""
        self.ask_to_stop()
        self.join(_STOP_SECONDS)
        with suppress(OSError):
            os.unlink(self._path)

    def _write(self) -> None:
        sign = {
            **self._always,
            "not_alive": self._told.why_not_alive(),
            "not_ready": self._told.why_not_ready(),
            "written": time.monotonic(),
        }
        partial = f"{self._path}.partial"
        # Without a file object: its lock might be held at a fork.
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(number, json.dumps(sign).encode())
        finally:
            os.close(number)
        os.replace(partial, self._path)


def _clear(directory: str) -> None:
    """Remove the files of workers that have ended without doing so."""
    for name in os.listdir(directory):
        if not name.endswith(SUFFIX):
            continue
        path = os.path.join(directory, name)
        with suppress(OSError, ValueError, KeyError, TypeError):
            with open(path, encoding="utf-8") as file:
                identity = json.load(file)["identity"]
            is_of_here = identity["pids"] == identity_of(os.getpid())["pids"]
            is_old = time.time() - os.stat(path).st_mtime > _LEFT_SECONDS
            if is_old or (is_of_here and not is_there(identity)):
                os.unlink(path)
