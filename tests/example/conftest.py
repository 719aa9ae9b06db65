"""Starting the example's commands from outside, and finding whatever they leave behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import django
import psutil
import pytest

from tests.support.serving import spawn

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "example_project"
MARK = "RELIABLE_TEST_MARK"


class Marked:
    """A command whose descendants can all be found, by a variable that they inherit."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.output = folder / "output.txt"

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of the example's scripts in a folder that is not the project's."""
        environ = {MARK: self.mark, "TMPDIR": str(self.temporary)}
        command = [sys.executable, *arguments]
        self.process = spawn(command, environ=environ, log_path=self.output, folder=self.folder)
        return self.process

    def said(self) -> str:
        """Return what the command has written so far."""
        return self.output.read_text()

    def left_behind(self) -> list[psutil.Process]:
        """Return the processes that still carry the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    """A command of the example; whatever it leaves is ended after the test, by its id."""
    if django.VERSION < (5, 1):
        pytest.skip("the example tells SQLite how to begin transactions, which needs Django 5.1")
    command = Marked(tmp_path)
    yield command
    if command.process is not None and command.process.poll() is None:
        command.process.send_signal(signal.SIGTERM)
        try:
            command.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            command.process.kill()
            command.process.wait()
    for process in command.left_behind():
        process.kill()
