"""The demo as a picture: what happened, the documents, and what was seen of each promise."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from drill.diary import Diary
from drill.display import Display, document_table, report_table
from drill.processes import Member
from drill.report import Report

WIDTH = 104
# A picture that fetches a font would tell its host who looks at it.
_FETCHED = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
# Each run has folders and ports of its own, which say nothing to anybody.
_NOT_SHOWN = re.compile(r"^Redis of our own: ")


class Picture:
    """A display that shows all to another one, and draws the end of it into a file as SVG."""

    def __init__(self, display: Display, path: Path) -> None:
        self._display = display
        self._path = path
        self._begin = time.monotonic()
        self._events: list[str] = []
        self._diary = Diary()

    def event(self, text: str) -> None:
        """Keep the event."""
        self._display.event(text)
        if not _NOT_SHOWN.match(text):
            self._events.append(f"{time.monotonic() - self._begin:5.1f} s  {text}")

    def update(self, diary: Diary, members: Sequence[Member]) -> None:
        """Keep how things stand."""
        self._diary = diary
        self._display.update(diary, members)

    def report(self, report: Report) -> None:
        """Draw."""
        self._display.report(report)
        console = Console(
            record=True,
            file=io.StringIO(),
            width=WIDTH,
            force_terminal=True,
            color_system="truecolor",
        )
        for line in self._events:
            style = "bold red" if "killed" in line else "bold green" if "again" in line else ""
            console.print(Text(line, style=style, overflow="ellipsis", no_wrap=True))
        console.print()
        console.print(document_table(self._diary))
        console.print()
        console.print(report_table(report))
        console.print(Text(report.verdict, style="bold green" if report.ok else "bold red"))
        svg = console.export_svg(title="tox run -e demo", unique_id="demo")
        self._path.write_text(_FETCHED.sub("", svg), "utf-8")

    def close(self) -> None:
        """Give the terminal back."""
        self._display.close()
