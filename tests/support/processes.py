"""Celery workers and beats as real processes, to be killed and frozen, and always ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.preloaded import REPOSITORY as REPOSITORY
from tests.support.preloaded import Forked, can_be_forked, start_celery
from tests.support.waiting import wait_for

READY_SECONDS = 45.0
STOP_SECONDS = 45.0
GONE_SECONDS = 10.0

_STILL = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE})


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until it does not move."""
    os.kill(pid, signal.SIGSTOP)
    wait_until_still([pid])


def wait_until_still(pids: Sequence[int]) -> None:
    """Wait until none of those that were sent SIGSTOP moves.

    One that runs on another core goes on for a moment after it was sent.
    """
    wait_for(lambda: {*map(_status, pids)} <= _STILL, GONE_SECONDS, f"{pids} to stand still")


def _status(pid: int) -> str:
    # A killed orphan stays a zombie where nobody reaps, as in a container without an init.
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_ZOMBIE)


def run_python(
    *arguments: object,
    code: int | None = 0,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run Python, which finds this repository; *code* is what it must end with, if one is given."""
    ran = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(environ or {})}, capture_output=True,
        text=True, timeout=240, check=False,
    )  # fmt: skip
    assert code in (None, ran.returncode), ran.stdout + ran.stderr
    return ran


class CeleryProcess:
    """One `python -m celery -A APP ...` in a session and process group of its own.

    Nothing is sent once it is reaped, as its id may be another's by then.  Its output goes to
    `log_path`, which is for reports of failures and never for decisions.
    `is_ready` says whether the process has told that it is up.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        app: str,
        environ: Mapping[str, str],
        log_path: Path,
        is_ready: Callable[[], bool],
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._is_ready = is_ready
        self._strays: set[psutil.Process] = set()
        search_path = os.pathsep.join(filter(None, [str(REPOSITORY), environ.get("PYTHONPATH")]))
        self._process = self._begin(
            ["-A", app, *arguments],
            environ={**environ, "PYTHONPATH": search_path, "PYTHONUNBUFFERED": "1"},
        )

    @property
    def pid(self) -> int:
        """That of the main process, and of its session."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the main process has not ended."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    @property
    def is_ready(self) -> bool:
        """Whether it has said that it is up, and has not ended since."""
        return self.is_running and self._is_ready()

    def wait_until_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Wait until it has said that it is up; fail at once if it ended instead."""
        wait_for(self._ready_or_raise, timeout_seconds, f"{self.name} to be ready")

    def wait_until_ended(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait until the main process has ended by itself, and return its exit code."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout_seconds:g} s") from None

    def children(self) -> list[int]:
        """The pids of the main process's own children: a prefork worker's pool."""
        try:
            return [
                child.pid
                for child in psutil.Process(self.pid).children()
                if child.status() != psutil.STATUS_ZOMBIE
            ]
        except psutil.NoSuchProcess:
            return []

    def kill_group(self) -> None:
        """SIGKILL to the main process and all it started, at once: the node is gone."""
        self.end()

    def kill_child(self, pid: int) -> None:
        """SIGKILL to one of its processes.  Raises ValueError if it is none, or the main one."""
        if pid == self.pid or not self._has(pid):
            raise ValueError(f"{pid} is no child of {self.pid}")
        os.kill(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP to the whole group: connections stay open, nothing moves."""
        self._signal_all(signal.SIGSTOP)
        wait_until_still(self.survivors())

    def thaw(self) -> None:
        """SIGCONT to all."""
        self._signal_all(signal.SIGCONT)

    def signal_main(self, number: signal.Signals) -> None:
        """Send one signal to the main process, as an operator does."""
        self._process.send_signal(number)

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """SIGTERM to the main process, wait for its end, and return its exit code."""
        self._note_strays()
        self.signal_main(signal.SIGTERM)
        return self.wait_until_ended(timeout_seconds)

    def log_text(self, last_lines: int | None = None) -> str:
        """What it printed, or the end of it: for a person who reads a failed test's report."""
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines if last_lines is None else lines[-last_lines:])

    def survivors(self) -> list[int]:
        """The pids of its group, and of what left its group, that have not ended."""
        found = {pid for pid in psutil.pids() if self._has(pid)}
        found |= {process.pid for process in self._strays if process.is_running()}
        return sorted(pid for pid in found if _status(pid) != psutil.STATUS_ZOMBIE)

    def end(self) -> None:
        """Kill whatever is left, and make sure that nothing is."""
        self._note_strays()
        self._signal_all(signal.SIGKILL)
        self._process.wait(GONE_SECONDS)
        wait_for(self._kill_survivors, GONE_SECONDS, f"the end of all of {self.name}")

    def _has(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.pid
        except ProcessLookupError:
            return False

    def _signal_all(self, number: signal.Signals) -> None:
        if self.is_running:
            os.killpg(self.pid, number)

    def _begin(
        self, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | Forked:
        with self.log_path.open("ab") as log, open(os.devnull, "rb") as nothing:
            streams = {"stdin": nothing, "stdout": log, "stderr": log}
            where: Any = {"cwd": self.log_path.parent, "env": environ, **streams}
            if can_be_forked(arguments, environ):
                return start_celery(arguments, **where)
            command = [sys.executable, "-m", "celery", *arguments]
            return subprocess.Popen(command, start_new_session=True, **where)

    def _ready_or_raise(self) -> bool:
        if not self.is_running:
            raise AssertionError(
                f"{self.name} ended with {self.exit_code} before it was ready:\n"
                f"{self.log_text(last_lines=40)}"
            )
        return self._is_ready()

    def _kill_survivors(self) -> bool:
        survivors = self.survivors()
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
        return not survivors

    def _note_strays(self) -> None:
        try:
            self._strays.update(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            pass


class Worker(CeleryProcess):
    """A worker of Celery's own command line, in Celery's own defaults but for the pool's size."""

    def __init__(
        self,
        name: str,
        *,
        concurrency: int = 2,
        pool: str = "prefork",
        options: Sequence[str] = (),
        **others: Any,
    ) -> None:
        arguments = ["worker", "-n", f"{name}@%h", "-c", str(concurrency)]
        # Without one it is the app's setting that counts.
        arguments += ["-P", pool] if pool else []
        super().__init__(name, [*arguments, "--loglevel", "INFO", *options], **others)


class Beat(CeleryProcess):
    """A beat that keeps its schedule file beside its log."""

    def __init__(
        self, name: str, *, log_path: Path, options: Sequence[str] = (), **others: Any
    ) -> None:
        schedule = log_path.with_suffix(".schedule")
        arguments = ["beat", "--schedule", str(schedule), "--pidfile=", "--loglevel", "INFO"]
        super().__init__(name, [*arguments, *options], log_path=log_path, **others)
