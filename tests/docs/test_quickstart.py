"""The quickstarts, followed to the letter in an empty folder, with a Redis and real kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, Page
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

PAGES = ("quickstart.rst", "quickstart-celery.rst")
DJANGO, PLAIN = map(Page, PAGES)

MOST_LINES = 15
MOST_SECONDS = 300
URL = "redis://localhost:6379/0"
#: The work takes until the reader has looked, however slow the machine is.
BREWS = "time.sleep(10)"
WAITS = "import pathlib\n    while not pathlib.Path({!r}).exists():\n        time.sleep(0.05)"
#: What the environment of the tests is made by.
INSTALLING = (
    "python3 -m venv .venv && . .venv/bin/activate",
    'pip install "celery-reliable[django,cli]"',
    'pip install "celery-reliable[cli]"',
)
#: What that has installed, and this environment perhaps without its scripts.
PROGRAMS = {"celery": "-m celery", "django-admin": "-m django", "python": ""}


class Reader:
    """Does what a page says, block by block, with a terminal for each worker."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.brewed = folder.parent / "brewed"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.said: list[str] = []
        programs = folder.parent / "bin"
        programs.mkdir()
        for name, started in PROGRAMS.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {started} "$@"\n')
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if "DJANGO" not in name}
        self.environ = {
            **kept,
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PYTHONUNBUFFERED": "1",
        }

    def follow(self, page: Page) -> None:
        for block in page.blocks:
            if block.language == "python":
                self._write(block)
            else:
                assert block.language == "console", block
                for command in block.commands:
                    self._do(command)

    def sees(self, words: str) -> re.Match[str]:
        """Wait until a terminal says so."""

        def said() -> re.Match[str] | None:
            terminals = sorted(self.folder.glob("terminal-*"))
            return re.search(words, "".join(path.read_text() for path in terminals))

        return wait_for(said, 30, f"a worker says {words}")

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()

    def _write(self, block: Block) -> None:
        assert block.caption, f"{block} does not say of which file it is"
        text = block.text.replace(URL, self.url).replace(BREWS, WAITS.format(str(self.brewed)))
        with (self.folder / block.caption).open("a") as file:
            file.write(text)

    def _do(self, command: str) -> None:
        if command in INSTALLING:
            return
        if command.startswith("celery -A proj worker"):
            self._start(command)
            if len(self.workers) > 1:
                self.sees("attempt 2")
            return
        if command.startswith("kill"):
            seen = self.sees(r"attempt 1(?: in process (\d+))?")
            command = command.replace("PID", seen[1] or "")
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not ran.returncode, (command, ran.stdout, ran.stderr)
        if command.startswith("kill"):
            self._has_killed()
        self.said.append(ran.stdout)

    def _start(self, command: str) -> None:
        with (self.folder / f"terminal-{len(self.workers)}").open("wb") as terminal:
            self.workers.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"],
                    cwd=self.folder,
                    env=self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=terminal,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _has_killed(self) -> None:
        if (self.folder / "worker.pid").exists():
            assert self.workers[0].wait(10) == -signal.SIGKILL
        else:
            self.sees(r"attempt 2 in process \d+")


@pytest.fixture
def reader(tmp_path: Path, redis_server: RedisServer) -> Iterator[Reader]:
    (tmp_path / "empty").mkdir()
    one = Reader(tmp_path / "empty", redis_server.url())
    yield one
    one.close()


@pytest.mark.parametrize("page", [DJANGO, PLAIN], ids=PAGES)
def test_a_new_user_sees_a_killed_task_run_again(
    page: Page, reader: Reader, redis_server: RedisServer
) -> None:
    begun = time.monotonic()

    reader.follow(page)
    reader.brewed.touch()

    assert time.monotonic() - begun < MOST_SECONDS
    assert any(one.startswith("Attempt 2 runs") and "lost" in one for one in reader.said)
    if page is DJANGO:
        wait_for(lambda: not redis_server.client().keys("{reliable:0}:task:*"), 30, "its end")


def test_it_takes_as_few_lines_as_it_says() -> None:
    lines = [line for block in DJANGO.of("python") for line in block.text.splitlines() if line]

    assert len(lines) < MOST_LINES
    assert f"five minutes, {len(lines)} lines" in DJANGO.text
