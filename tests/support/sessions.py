"""A process with all that it has started, to be killed, frozen and thawed as one."""

from __future__ import annotations

import os
import signal
from typing import Protocol

__all__ = ["Leader", "Session"]


class Leader(Protocol):
    """A process that this one has started, as `subprocess.Popen` is."""

    @property
    def pid(self) -> int:
        """Its id, which is its session's, too."""

    def poll(self) -> int | None:
        """Reap it if it has ended; return its exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code."""


class Session:
    """A process that leads a session of its own, and what it has started there: a worker.

    Nobody else is ever sent a signal: nothing is sent once the leader is reaped, as its id may be
    another's by then.
    """

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    @property
    def pid(self) -> int:
        """That of the leader: a worker's main process."""
        return self._leader.pid

    @property
    def is_running(self) -> bool:
        """Whether the leader has not ended."""
        return self._leader.poll() is None

    def has(self, pid: int) -> bool:
        """Whether this is one of its processes."""
        try:
            return os.getsid(pid) == self.pid
        except ProcessLookupError:
            return False

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        if self.is_running:
            os.killpg(self.pid, number)

    def kill(self, timeout_seconds: float | None = None) -> None:
        """SIGKILL to all of its processes, as when a node is gone; wait for the end of the leader.

        Raises subprocess.TimeoutExpired.
        """
        self.signal_all(signal.SIGKILL)
        self._leader.wait(timeout_seconds)

    def kill_child(self, pid: int) -> None:
        """SIGKILL to one of its processes.  Raises ValueError if it is none, or the leader."""
        if pid == self.pid or not self.has(pid):
            raise ValueError(f"{pid} is no child of {self.pid}")
        os.kill(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP to all: connections stay open.  On another core one may go on for a moment."""
        self.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT to all."""
        self.signal_all(signal.SIGCONT)
