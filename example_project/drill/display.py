"""What the demo shows while it runs: live tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from drill.diary import Diary, Document
from drill.processes import Member
from drill.report import Report

N_EVENTS = 8
# The progress bar, the table's head, the processes, the frame of the events.
N_OTHER_LINES = 7
BAR_WIDTH = 10


class Display(Protocol):
    """Tells the people in front of it what happens."""

    def event(self, text: str) -> None:
        """Tell one thing that happened."""

    def update(self, diary: Diary, members: Sequence[Member]) -> None:
        """Show how things stand."""

    def report(self, report: Report) -> None:
        """Show the report; nothing is shown after it."""

    def close(self) -> None:
        """Give the terminal back."""


class PlainDisplay:
    """One line for each event, with the seconds since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def event(self, text: str) -> None:
        """Print the event."""
        print(f"{time.monotonic() - self._begin:6.1f} s  {text}", flush=True)

    def update(self, diary: Diary, members: Sequence[Member]) -> None:
        """Print nothing: the events tell enough."""

    def report(self, report: Report) -> None:
        """Print a line for each check."""
        for check in report.checks:
            print(f"{'ok    ' if check.ok else 'FAILED'}  {check.name}: {check.facts}", flush=True)
        print(report.verdict, flush=True)

    def close(self) -> None:
        """Nothing to give back."""


class LiveDisplay:
    """Tables that change in place."""

    def __init__(self, check_seconds: float) -> None:
        self._check_seconds = check_seconds
        self._begin = time.monotonic()
        self._console = Console()
        self._events: deque[str] = deque(maxlen=N_EVENTS)
        self._progress = Progress(
            TextColumn("documents checked"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = self._progress.add_task("checked", total=None)
        self._live = Live(console=self._console, refresh_per_second=8)
        self._live.start()

    def event(self, text: str) -> None:
        """Add the event to the list below the tables."""
        self._events.append(f"{time.monotonic() - self._begin:5.1f} s  {text}")

    def update(self, diary: Diary, members: Sequence[Member]) -> None:
        """Draw the tables anew."""
        n_checked = sum(document.is_checked for document in diary.documents)
        self._progress.update(self._bar, completed=n_checked, total=len(diary.documents) or None)
        self._live.update(
            Group(
                self._progress,
                document_table(diary, self._visible(diary.documents), self._check_seconds),
                self._member_line(members),
                Panel(Text("\n".join(self._events)), title="what happened"),
            )
        )

    def _visible(self, documents: Sequence[Document]) -> Sequence[Document]:
        """Leave out the first documents when the terminal is too low for all of them."""
        n_rows = max(self._console.height - N_EVENTS - N_OTHER_LINES, 4)
        return documents[-n_rows:]

    def _member_line(self, members: Sequence[Member]) -> Text:
        line = Text()
        for member in members:
            is_up = member.state == "up" and member.is_alive()
            state = "up" if is_up else "killed" if member.state == "killed" else "gone"
            line.append(f"{member.name.partition('@')[0]} {member.pid} ")
            line.append(state, style="green" if is_up else "bold red")
            line.append("   ")
        return line

    def report(self, report: Report) -> None:
        """Print the report below the tables' last state."""
        self._live.stop()
        self._console.print(report_table(report))
        style = "bold green" if report.ok else "bold red"
        self._console.print(Text(report.verdict, style=style))

    def close(self) -> None:
        """Stop drawing."""
        self._live.stop()


def document_table(
    diary: Diary, documents: Sequence[Document] | None = None, check_seconds: float = 0
) -> Table:
    """The documents and how they stand; and how far each check is."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("document", no_wrap=True, overflow="ellipsis", width=20)
    for column, width in (("status", 9), ("attempt", 7), ("worker", 6)):
        table.add_column(column, no_wrap=True, min_width=width)
    if check_seconds:
        table.add_column("", width=BAR_WIDTH)
    table.add_column("readability", no_wrap=True, overflow="ellipsis", max_width=19)
    for document in diary.documents if documents is None else documents:
        runs = diary.runs_of(document.pk)
        bar = [_bar_of(document, diary, check_seconds)] if check_seconds else []
        table.add_row(
            document.name,
            Text(document.status, style=_status_style(document, len(runs))),
            Text(str(document.attempt or ""), style="bold" if document.attempt > 1 else ""),
            runs[-1].worker.partition("@")[0] if runs else "",
            *bar,
            f"{document.readability:.0f} {document.grade}" if document.is_checked else "",
        )
    return table


def report_table(report: Report) -> Table:
    """A row for each promise: whether it was kept, and what was seen."""
    table = Table(title="what was promised, and what was seen", show_lines=True, box=SIMPLE_HEAD)
    table.add_column("")
    table.add_column("promise")
    table.add_column("seen")
    for check in report.checks:
        mark = Text("ok", style="bold green") if check.ok else Text("FAILED", style="bold red")
        table.add_row(mark, check.name, check.facts)
    return table


def _bar_of(document: Document, diary: Diary, check_seconds: float) -> ProgressBar | str:
    if document.is_checked:
        return ProgressBar(total=1, completed=1, width=BAR_WIDTH)
    open_runs = [run for run in diary.runs_of(document.pk) if run.ended is None]
    if not open_runs:
        return ""
    elapsed = time.time() - open_runs[-1].started
    return ProgressBar(total=check_seconds, completed=elapsed, width=BAR_WIDTH)


def _status_style(document: Document, n_runs: int) -> str:
    if document.is_checked:
        return "green"
    if document.status == "running":
        return "yellow" if n_runs == 1 else "magenta"
    return "dim"


def display_for(*, check_seconds: float, plain: bool) -> Display:
    """Return live tables on a terminal, plain lines elsewhere or when asked for."""
    if plain or not Console().is_terminal:
        return PlainDisplay()
    return LiveDisplay(check_seconds)
