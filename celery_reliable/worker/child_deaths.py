"""How a process died: its signal or exit code, and whether the kernel was out of memory."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from celery_reliable.exceptions import said

__all__ = ["MemoryWatch", "how_it_ended", "watch"]

#: The pool notices a death at most so long after it.
_NOTICED_SECONDS = 15.0
#: What billiard and Celery write before and after how a lost process ended.
_BEFORE, _AFTER = "Worker exited prematurely: ", " Job: "
_LONGEST = 200
_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_OWN_CGROUP = Path("/proc/self/cgroup")


class MemoryWatch:
    """Watches whether the kernel kills processes of this one's cgroup since memory has run out.

    Only cgroup v2 counts that; elsewhere nothing is known.  It names no process: when two are
    killed within 15 seconds, and one of them by somebody else, both count.
    """

    def __init__(self, events: Path | None = None) -> None:
        self._events = _events_file() if events is None else events
        #: When a count was read (monotonic clock), and the count.  The first is older than any
        #: death that is noticed now.
        self._seen: deque[tuple[float, int]] = deque()
        self.look()

    def look(self) -> None:
        """Note the count; to be called every few seconds."""
        count, now = self._count(), time.monotonic()
        if count is None:
            return
        while len(self._seen) > 1 and now - self._seen[1][0] > _NOTICED_SECONDS:
            self._seen.popleft()
        self._seen.append((now, count))

    def has_killed(self) -> bool:
        """Whether the kernel has killed a process within the last 15 seconds or so."""
        self.look()
        return bool(self._seen) and self._seen[-1][1] > self._seen[0][1]

    def _count(self) -> int | None:
        if self._events is None:
            return None
        try:
            lines = self._events.read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        except (OSError, ValueError, StopIteration):
            return None


def _events_file() -> Path | None:
    """Return the file with the counts of this process's cgroup; None where there is none."""
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), None)
    if own is None:
        return None
    # Within a container its own cgroup is mounted as the root, whatever it is called outside.
    places = [mount / name / "memory.events" for mount in _MOUNTS for name in (own, "")]
    return next((place for place in places if place.is_file()), None)


#: The watch over this process's cgroup.
watch = MemoryWatch()


def how_it_ended(error: BaseException, pid: int | None) -> str:
    """Return a line for people on how a child process ended, from the error that Celery made."""
    text = " ".join(said(error).split())
    text = text.removeprefix(_BEFORE).partition(_AFTER)[0].rstrip(".")[:_LONGEST]
    told = [text] if pid is None else [text, f"pid {pid}"]
    if "SIGKILL" in text and watch.has_killed():
        told.append("out of memory")
    return ", ".join(told)
