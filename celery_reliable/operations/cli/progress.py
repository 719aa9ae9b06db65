"""What a long act says while it goes on, and when somebody interrupts it."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import click

from celery_reliable.clock import span
from celery_reliable.operations.views import Done, as_json

__all__ = ["Progress", "interruptible", "repeated"]

_EVERY_SECONDS = 1.0
#: As a shell has it of a process that SIGINT has ended.
_INTERRUPTED = 130


class Progress:
    """Says each second on stderr how far an act is: a bar at a terminal, else a line.

    *total*: how many letters, or tasks, are meant; None: not known.
    """

    def __init__(self, verb: str, total: int | None) -> None:
        self.last: Done | None = None
        self._count = 0
        self._verb = verb
        self._total = total
        self._began = time.monotonic()
        self._is_over = threading.Event()
        # The act itself may sleep for long between two letters.
        self._thread = threading.Thread(target=self._say, daemon=True)
        self._bar: Any = _bar() if sys.stderr.isatty() else None
        self._task: Any = None

    def __call__(self, done: Done) -> None:
        """Take what has been done so far."""
        self.last = done
        self.reach(done.done + done.gone + done.failed)

    def reach(self, count: int) -> None:
        """Take how many of them the act has dealt with so far."""
        self._count = count

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if self._bar is not None:
            self._bar.stop()

    @property
    def line(self) -> str:
        """How far it is: "50 of 4660 replayed, 98.0/s, 47 s left"."""
        count = self._count
        of = "" if self._total is None else f" of {self._total}"
        rate = count / max(0.001, time.monotonic() - self._began)
        said = f"{count}{of} {self._verb}, {rate:.1f}/s"
        if self._total is None or not count:
            return said
        return f"{said}, {span(max(0, self._total - count) / rate)} left"

    def _say(self) -> None:
        while not self._is_over.wait(_EVERY_SECONDS):
            if self._bar is None:
                click.echo(self.line, err=True)
            else:
                self._bar.update(self._task, completed=self._count, description=self.line)

    def to_go_on(self, limit: int | None) -> str:
        """Return what was done, and the command that does the rest."""
        more: list[str] = []
        if self.last is not None:
            more = ["--before", as_json(self.last.before)]
            if limit is not None:
                more += ["--limit", str(max(1, limit - self.last.done))]
        return f"Interrupted: {self.line}. To go on:\n  {repeated(*more)}"


def repeated(*more: str) -> str:
    """Return the command that was given, with more options."""
    return f"celery {shlex.join([*sys.argv[1:], *more])}"


@contextmanager
def interruptible(told: Callable[[], str]) -> Iterator[None]:
    """On Ctrl-C say what there is to say, and exit as what is interrupted does."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(told(), err=True)
        sys.exit(_INTERRUPTED)


def _bar() -> Any:
    """Return a bar; None where the package that draws it is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    return Bar(
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
