"""What killed an attempt, read from the line that its history has of it.

The line is written for people, by workers of any version.  What cannot be read of it is not told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from celery_reliable.model import Cause, HistoryEntry

__all__ = ["Death", "last_death"]

_SIGNAL = re.compile(r"signal \d+ \((SIG\w{1,20})\)")
_EXIT_CODE = re.compile(r"exitcode (-?\d{1,10})")
_PID = re.compile(r"pid (\d{1,20})")
_WORDS = frozenset(cause.value for cause in Cause)


@dataclass(frozen=True)
class Death:
    """How an attempt was lost, as far as it is known."""

    #: One of `model.Cause`; empty where the line says none.
    cause: str = ""
    #: "SIGKILL"; empty where it was none, or nobody knows.
    signal: str = ""
    exit_code: int | None = None
    #: The kernel had killed for want of memory just then.
    is_out_of_memory: bool = False
    pid: int | None = None

    @classmethod
    def of(cls, line: str) -> Death:
        """Read a line such as "child_lost: signal 9 (SIGKILL), pid 7, out of memory"."""
        cause, _, detail = line.partition(":")
        if cause not in _WORDS:
            return cls()
        if cause == Cause.NO_OUTCOME.value:
            # What follows is an exception's text, in which anything may stand.
            return cls(cause)
        parts = [part.strip() for part in detail.partition(";")[0].split(",")]
        signal = next((found[1] for one in parts if (found := _SIGNAL.fullmatch(one))), "")
        code = next((found[1] for one in parts if (found := _EXIT_CODE.fullmatch(one))), None)
        pid = next((found[1] for one in parts if (found := _PID.fullmatch(one))), None)
        return cls(
            cause,
            signal,
            None if code is None else int(code),
            "out of memory" in parts,
            None if pid is None else int(pid),
        )

    def __str__(self) -> str:
        """Return what deaths of one kind have in common: "child_lost, SIGKILL, out of memory"."""
        parts = [
            self.cause,
            self.signal,
            "" if self.exit_code is None else f"exit code {self.exit_code}",
            "out of memory" if self.is_out_of_memory else "",
        ]
        return ", ".join(part for part in parts if part)


def last_death(history: Sequence[HistoryEntry], exception: str) -> Death:
    """Return what the last loss of a history was put down to; *exception*: what is said where the
    history says nothing.
    """
    lost = (entry.cause for entry in reversed(history) if entry.what == "lost")
    return Death.of(next(lost, exception))
