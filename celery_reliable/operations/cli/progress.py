"""What a long act says while it goes on, and when somebody interrupts it."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from celery_reliable.clock import span
from celery_reliable.operations.views import as_json

__all__ = ["Progress", "interruptible"]

_EVERY_SECONDS = 1.0
#: As a shell has it of a process that SIGINT has ended.
_INTERRUPTED = 130


class Progress:
    """Says each second on stderr how far an act is.

    *total*: how many letters, or tasks, are meant; None: not known.
    """

    def __init__(self, verb: str, total: int | None) -> None:
        self._count = 0
        #: The parameters with which the same act goes on from here.
        self._more: Mapping[str, Any] = {}
        self._verb = verb
        self._total = total
        self._began = time.monotonic()
        self._is_over = threading.Event()

    def __call__(self, count: int, more: Mapping[str, Any]) -> None:
        """Take how many the act has dealt with so far, and what leads on from there."""
        self._count, self._more = count, more

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Say it until this is over."""
        # The act itself may sleep for long between two letters.
        thread = threading.Thread(target=self._say, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

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

    @property
    def command(self) -> str:
        """The command that does the rest: the one that was given, with more options."""
        more = [
            word
            for name, value in self._more.items()
            for word in (f"--{name.replace('_', '-')}", str(as_json(value)))
        ]
        return f"celery {shlex.join([*sys.argv[1:], *more])}"

    def _say(self) -> None:
        while not self._is_over.wait(_EVERY_SECONDS):
            click.echo(self.line, err=True)


@contextmanager
def interruptible(verb: str, total: int | None) -> Iterator[Progress]:
    """Show the progress of what is done within.  On Ctrl-C say what leads on, and exit as what is
    interrupted does.
    """
    progress = Progress(verb, total)
    try:
        with progress.shown():
            yield progress
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted: {progress.line}; that stays so. To go on:\n  {progress.command}",
            err=True,
        )
        sys.exit(_INTERRUPTED)
