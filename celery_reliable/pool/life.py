"""How many tasks a process of the pool has run, and may run until it is replaced."""

from __future__ import annotations

__all__ = ["ProcessLife", "own_life"]


class ProcessLife:
    """That of one process.  A job that is no shift counts as one task."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._done = 0

    def begin(self, most: int | None) -> None:
        """It runs so many tasks at most; None: any number."""
        self._most, self._done = most, 0

    def has_job(self) -> None:
        """It has been handed a job."""
        self._done += 1

    def begin_shift(self) -> None:
        """The job is a shift, whose tasks are counted one by one."""
        self._done -= 1

    def has_task(self) -> None:
        """It begins a task of a shift."""
        self._done += 1

    @property
    def is_over(self) -> bool:
        """Whether it is to be replaced."""
        return self._most is not None and self._done >= self._most


#: That of this process.
own_life = ProcessLife()
