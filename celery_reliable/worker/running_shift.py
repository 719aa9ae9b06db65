"""Shifts that were handed to the pool, as the main process knows them."""

from __future__ import annotations

import os
import secrets
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from celery_reliable.broker import Delivery
from celery_reliable.pool import N_SLOTS, clear_slot, how_far

__all__ = ["RunningShift", "RunningShifts"]


@dataclass
class RunningShift:
    """A shift that was handed to the pool."""

    token: str
    slot: int
    #: The message that it begins with and files, by the key of the list that it came from.
    given: tuple[str, Delivery] | None = None
    pid: int | None = None
    #: That of the pool.
    job: Any = None
    #: When the last task began of which it was told that its soft limit is up.
    told_of: float = 0.0

    def holds(self, tag: str) -> bool:
        """Whether it is not done with this message, or claim."""
        number = tag.rpartition(".")[2]
        earliest, latest = how_far(self.slot)
        return number.isdecimal() and earliest <= int(number) <= latest

    def has(self, tag: str) -> bool:
        """Whether it has taken the message with this tag."""
        return tag.rpartition(".")[0] == self.token

    def tag_of(self, number: int) -> str:
        """Return the tag of its message with this number; it is the token of its claim, too."""
        return f"{self.token}.{number}"

    @property
    def unfiled(self) -> tuple[str, Delivery] | None:
        """The message that it was given, and has not been seen to file."""
        return self.given if how_far(self.slot)[0] == 0 else None


class RunningShifts:
    """All of one worker.  Any thread may ask whose a claim is."""

    def __init__(self) -> None:
        self._running: dict[str, RunningShift] = {}
        #: Those of the shared memory that are free; the one that was given back first is the last
        #: to be used again.
        self._slots = deque(range(N_SLOTS))

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[RunningShift]:
        return iter(list(self._running.values()))

    @property
    def is_full(self) -> bool:
        """Whether no more can run at once."""
        return not self._slots

    def add(self) -> RunningShift:
        """Return a new one."""
        slot = self._slots.popleft()
        clear_slot(slot)
        running = RunningShift(secrets.token_hex(8), slot)
        self._running[running.token] = running
        return running

    def accepted(self, token: str, pid: int) -> None:
        """Note which process has it."""
        if token in self._running:
            self._running[token].pid = pid

    def of_token(self, token: str) -> RunningShift | None:
        """Return the one with this token; None if it has ended."""
        return self._running.get(token)

    def remove(self, token: str) -> RunningShift | None:
        """Forget a shift that has ended, and return it."""
        running = self._running.pop(token, None)
        if running is not None:
            self._slots.append(running.slot)
        return running

    def holds(self, tag: str) -> bool:
        """Whether a message or a claim is that of a shift which has not ended."""
        running = self._of(tag)
        return running is not None and running.holds(tag)

    def _of(self, tag: str) -> RunningShift | None:
        return self._running.get(tag.rpartition(".")[0])

    def stop(self, token: str) -> None:
        """Kill the process that runs a claim which was taken from this worker."""
        running = self._of(token)
        if running is not None and running.pid is not None and running.holds(token):
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)

    def pid_of(self, token: str) -> int:
        """Return the process that runs a claim; 0 if nobody knows."""
        running = self._of(token)
        return (running.pid or 0) if running is not None else 0
