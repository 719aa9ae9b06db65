"""The command that shows a fleet on one screen, again and again, until somebody leaves it."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click
from celery.bin.base import CeleryCommand

from celery_reliable.exceptions import ReliableError
from celery_reliable.findings import check
from celery_reliable.operations.cli.calling import PATIENCE_SECONDS, app_of, errors_told
from celery_reliable.operations.cli.choosing import Duration
from celery_reliable.operations.cli.printing import console_of
from celery_reliable.operations.cli.screen import Line, screen
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.happenings import Happening
from celery_reliable.operations.tables import printable

__all__ = ["top"]

#: So many events fill the highest terminal.
_MOST_EVENTS = 200
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@click.command("top", cls=CeleryCommand)
@click.option(
    "--interval",
    type=Duration(0.2),
    default=2.0,
    show_default=True,
    help="Time between two looks.",
)
@click.option("--once", is_flag=True, help="Print it once; for pipes.")
@click.pass_context
def top(ctx: click.Context, interval: float, once: bool) -> None:
    """Show what is wrong, queues, workers, what happens by the hour, and the last events, live.

    q or Ctrl-C leaves.
    """
    console = console_of(ctx)
    if not once and not console.is_terminal:
        raise click.UsageError("top draws on a terminal. For a pipe there is --once.")
    with errors_told(ctx), Desk(app_of(ctx), patience_seconds=PATIENCE_SECONDS) as desk:
        view = _View(desk)
        if once:
            console.print(_drawn(view.lines(console.height)))
        else:
            _show(console, view, interval)


class _View:
    """What is seen, and what was seen before."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._cursor = ""
        self._happened: deque[Happening] = deque(maxlen=_MOST_EVENTS)

    def lines(self, height: int) -> list[Line]:
        """Look at everything once."""
        status = self._desk.status()
        # Only what has come since is asked for.
        found = self._desk.events(self._cursor, limit=_MOST_EVENTS)
        self._cursor = found.cursor
        self._happened.extend(found.items)
        return screen(
            status, check(status), self._desk.last_day(), list(self._happened), max(1, height)
        )


def _show(console: Any, view: _View, interval: float) -> None:
    from rich.live import Live

    try:
        with (
            _ended_by_signals(),
            _Keys() as keys,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while True:
                try:
                    lines = view.lines(console.height)
                except ReliableError as exc:
                    # It may come back.
                    lines = [Line(printable(str(exc)), "bold red"), Line("(q leaves)")]
                live.update(_drawn(lines), refresh=True)
                if keys.wait(interval) in ("q", "Q"):
                    return
    except KeyboardInterrupt:
        return


def _drawn(lines: list[Line]) -> Any:
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(one.text, one.style, no_wrap=True, overflow="ellipsis") for one in lines))


class _Keys:
    """The keyboard, key by key; as it was before, afterwards."""

    def __enter__(self) -> _Keys:
        self._in = sys.stdin.fileno() if sys.stdin.isatty() else None
        if self._in is not None:
            self._before = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)
        return self

    def __exit__(self, *_: object) -> None:
        if self._in is not None:
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Return the key that is pressed meanwhile; empty for none."""
        asked = [self._in] if self._in is not None else []
        ready, _, _ = select.select(asked, [], [], seconds)
        if not ready or self._in is None:
            return ""
        # A terminal that is gone says nothing any more.
        return os.read(self._in, 1).decode("ascii", "replace") or "q"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end this process give the terminal back."""

    def leave(number: int, _: Any) -> NoReturn:
        raise SystemExit(128 + number)

    before = {one: signal.signal(one, leave) for one in _ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
