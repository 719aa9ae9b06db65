"""What every server of a test's own has in common: it is started, waited for, and always ended."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from typing_extensions import Self

S = TypeVar("S", bound="Server")

STOP_SECONDS = 20.0


class Server(ABC):
    """Is started on entry to `with`, and killed at its end; mostly one process on a port."""

    port: int
    directory: Path
    log_name = "log"
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log_path(self) -> Path:
        return self.directory / self.log_name

    @property
    def pid(self) -> int:
        """The server's process id. Raises RuntimeError while it is down."""
        if self._process is None:
            raise RuntimeError(f"this {type(self).__name__} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it answers."""

    def kill(self) -> None:
        """SIGKILL to all of it, if it runs: whatever was not yet written is lost."""
        if self._process is not None:
            self._process.kill()
            self._wait_until_ended()

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it answers."""

    def _wait_for_answer(self, timeout_seconds: float, what: str) -> None:
        try:
            wait_for(self._answers_or_has_ended, timeout_seconds, f"{what} to answer")
        except BaseException:
            self.kill()
            raise

    def _answers_or_has_ended(self) -> bool:
        assert self._process is not None
        if not self.is_running:
            log = self.log_path.read_text() if self.log_path.exists() else "(no log)"
            raise RuntimeError(f"{type(self).__name__} ended: {self._process.returncode}\n{log}")
        return self._answers()

    def _wait_until_ended(self) -> None:
        assert self._process is not None
        self._process.wait(STOP_SECONDS)
        self._process = None


def spawn(
    arguments: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C at the terminal is for pytest, which then
    ends it in order.
    """
    with (log_path or Path(os.devnull)).open("ab") as log:
        return subprocess.Popen(
            arguments, cwd=folder, env={**os.environ, **(environ or {})}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


@contextmanager
def ended(make: Callable[..., S]) -> Iterator[Callable[..., S]]:
    """Give a function that makes and starts servers; all of them are killed at the end."""
    servers: list[S] = []

    def start(*args: object, **options: object) -> S:
        server = make(*args, **options)
        servers.append(server)
        server.start()
        return server

    try:
        yield start
    finally:
        for server in servers:
            server.kill()
