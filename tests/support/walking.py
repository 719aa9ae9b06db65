"""Follows what is done for a task through the modules of the package, from process to process.

Each process writes every function of the package that it enters to one file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["Entry", "entries", "follow", "following"]


class Entry(NamedTuple):
    """A function that a process has entered; *line* is its first, and tells two of one name."""

    pid: int
    module: str
    function: str
    line: int


def follow(path: Path) -> None:
    """Write down from now on what this thread enters, and those processes that it forks."""
    # Appended, so that a line of one process is never in one of another.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__"))
        # An import is no step, whenever it happens.
        if event != "call" or module.partition(".")[0] != "celery_reliable":
            return
        code = frame.f_code
        if code.co_name != "<module>":
            line = f"{os.getpid()} {module} {code.co_name} {code.co_firstlineno}\n"
            os.write(file, line.encode())

    sys.setprofile(note)


@contextmanager
def following(path: Path) -> Iterator[None]:
    """The same for this thread, while the block runs."""
    follow(path)
    try:
        yield
    finally:
        sys.setprofile(None)


def entries(path: Path) -> list[Entry]:
    """What was entered, in its order."""
    found = []
    for row in path.read_text("utf-8").splitlines():
        pid, module, function, line = row.split()
        found.append(Entry(int(pid), module, function, int(line)))
    return found
