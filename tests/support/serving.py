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

__all__ = ["Server", "ended", "spawn"]


class Server(ABC):
    """Is started on entry to `with`, and killed at its end."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it answers."""

    @abstractmethod
    def kill(self) -> None:
        """End all of it, if it runs."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it answers; raises RuntimeError when it has ended instead."""

    def _wait_for_answer(self, timeout_seconds: float, what: str) -> None:
        try:
            wait_for(self._answers, timeout_seconds, f"{what} to answer")
        except BaseException:
            self.kill()
            raise


def spawn(
    arguments: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    log_path: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C at the terminal is for pytest, which then
    ends it in order.
    """
    with (log_path or Path(os.devnull)).open("ab") as log:
        return subprocess.Popen(
            arguments,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


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
