"""A stage: one system with a server, workers and a folder of effects of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.arena.servers import Postgres, Redis, StageServer
from benchmarks.arena.systems import System
from tests.support.processes import REPOSITORY

__all__ = ["NotReady", "Run", "Stage", "Unit"]

READY_SECONDS = 60.0
POLL_SECONDS = 0.05


class NotReady(Exception):
    """A worker, or what publishes, did not do what is no fault's doing."""


@dataclass(frozen=True)
class Run:
    """One run of a task's body, by what it wrote."""

    run_id: str
    pid: int
    started_at: float
    last_seen_at: float
    has_ended: bool


class Unit:
    """What an orchestrator keeps up: a command, started again whenever it has ended."""

    def __init__(
        self, name: str, command: Sequence[str], environ: dict[str, str], log: Path
    ) -> None:
        self.name = name
        self._command, self._environ, self._log = command, environ, log
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.pids: set[int] = set()
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def pid(self) -> int:
        """Its main process now, which leads a session."""
        return self._process.pid

    def members(self) -> set[int]:
        """The processes of its session, which no other command of the arena is in."""
        return _session(self.pid)

    def signal_main(self, number: signal.Signals) -> None:
        """What an orchestrator sends."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def signal_all(self, number: signal.Signals) -> None:
        """To the whole session at once: the node."""
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """End it for good."""
        self._ended.set()
        self._keeper.join()
        for pid in self.pids:
            for member in _session(pid):
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        self._process.wait()

    def _keep(self) -> None:
        while not self._ended.wait(0.1):
            if self._process.poll() is not None:
                # What is left of it would be gone with its container.
                self.signal_all(signal.SIGKILL)
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command,
                env=self._environ,
                cwd=self._log.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pids.add(process.pid)
        return process


class Stage:
    """What a fault is played on."""

    def __init__(self, system: System, folder: Path, bound_seconds: float) -> None:
        self.system, self.folder = system, folder
        #: How long anything is waited for.
        self.bound_seconds = bound_seconds
        self.server: StageServer = (
            Postgres(folder) if system.server == "postgres" else Redis(folder)
        )
        self._units: list[Unit] = []

    @contextmanager
    def open(self) -> Iterator[Stage]:
        """Start the server, and end everything afterwards."""
        self.server.start()
        try:
            if self.system.server == "postgres":
                self._module("schema")
            if self.system.companion:
                self._units.append(
                    Unit(
                        "companion",
                        self.system.companion,
                        self._environ("companion"),
                        self.folder / "companion.log",
                    )
                )
            yield self
        finally:
            for unit in self._units:
                unit.end()
            with suppress(Exception):
                self.server.stop()

    def prepare(self, name: str) -> None:
        """Start a worker, as far as it comes without its broker."""
        (self.folder / f"hold-{name}").touch()
        self._start(name)

    def worker(self, name: str) -> Unit:
        """Start a worker for two tasks at a time, or let the prepared one go on, and wait until it
        takes some.
        """
        (self.folder / f"hold-{name}").unlink(missing_ok=True)
        unit = next((one for one in self._units if one.name == name), None) or self._start(name)
        if not self.wait((self.folder / f"ready-{name}").exists, READY_SECONDS):
            raise NotReady(f"{name} was not ready within {READY_SECONDS:g} s:\n{self.log(name)}")
        return unit

    def _start(self, name: str) -> Unit:
        node = ("-n", f"{name}@%h") if "with_celery" in self.system.module else ()
        unit = Unit(
            name,
            (*self.system.worker, *node),
            self._environ(name),
            self.folder / f"{name}.log",
        )
        self._units.append(unit)
        return unit

    def publish(self, *keys: str, mode: str = "gate", delay: float = 0) -> None:
        """Publish tasks of these keys from a process of its own."""
        jobs = [{"key": key, "mode": mode, "delay": delay} for key in keys]
        self._module(given=json.dumps(jobs))

    def open_gate(self) -> None:
        """Let what waits, or comes later, end."""
        (self.folder / "gate").touch()

    def runs(self, key: str) -> list[Run]:
        """What ran for a key, in the order of its beginnings."""
        file = self.folder / f"effects-{key}"
        found: dict[str, Run] = {}
        for line in file.read_text().splitlines() if file.exists() else []:
            at, what, run_id, pid = line.split()
            began = found[run_id].started_at if run_id in found else float(at)
            found[run_id] = Run(run_id, int(pid), began, float(at), what == "end")
        return list(found.values())

    def wait(self, condition: Callable[[], object], seconds: float | None = None) -> bool:
        """Wait for something for so long, at most the bound; say whether it came."""
        until = time.monotonic() + (self.bound_seconds if seconds is None else seconds)
        while not condition():
            if time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def wait_for_start(self, *keys: str) -> None:
        """Wait until these have begun.  Raises NotReady when they do not: no fault was done yet."""
        if not self.wait(lambda: all(self.runs(key) for key in keys), READY_SECONDS):
            raise NotReady(f"{keys} were not begun:\n{self.log('a')}")

    def log(self, name: str) -> str:
        """The end of a worker's output, for a person."""
        file = self.folder / f"{name}.log"
        return (
            "\n".join(file.read_text(errors="replace").splitlines()[-15:]) if file.exists() else ""
        )

    def _environ(self, name: str) -> dict[str, str]:
        return {
            **os.environ,
            **self.system.environ,
            "PYTHONPATH": str(REPOSITORY),
            "ARENA_FOLDER": str(self.folder),
            "ARENA_SYSTEM": self.system.name,
            "ARENA_URL": self.server.url,
            "ARENA_WORKER": name,
        }

    def _module(self, *arguments: str, given: str = "") -> None:
        ran = subprocess.run(
            [sys.executable, "-m", self.system.module, *arguments],
            env=self._environ("publisher"),
            cwd=self.folder,
            input=given,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
        )
        if ran.returncode:
            raise NotReady(f"{self.system.module} failed:\n{ran.stderr[-2000:]}")


def _session(leader: int) -> set[int]:
    found = set()
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.NoSuchProcess, PermissionError):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
    return found
