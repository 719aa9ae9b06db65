"""Copies of the repository, each with one fault at a time, and the tests that are run there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from proof.mutants.python import Mutant

__all__ = ["HUNG", "N_WORLDS", "Copy"]

_ROOT = Path(__file__).parents[2]

#: What is not needed there.
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".tox", ".hypothesis", ".*_cache", "__pycache__", "build", "*.egg-info"
)

#: So long tests may take on a mutant, and then so long to end what they have started.
_SECONDS, _SECONDS_TO_END = 400, 30

#: The outcome when tests never end.
HUNG = "hung"

#: In so many random worlds a mutant is looked for.
N_WORLDS = 24

#: How a random world is named that kills a mutant.
_WORLD = re.compile(r"world ([0-9]+)")
_FAULTY_WORLD = re.compile(r"^world ([0-9]+): ", re.MULTILINE)
_MISSING = re.compile(r"^ERROR: not found: .*?/copy/(.*)$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)


class Copy:
    """One copy; for one thread."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "copy"
        shutil.copytree(_ROOT, self._root, ignore=_LEFT_OUT, symlinks=True)

    @contextlib.contextmanager
    def having(self, mutant: Mutant) -> Iterator[None]:
        """Let the copy have a fault for a while."""
        file = self._root / "celery_reliable" / mutant.path
        before = file.read_bytes()
        try:
            self._write(file, mutant.text().encode())
            yield
        finally:
            self._write(file, before)

    def killer(self, tests: Sequence[str]) -> str | None:
        """Return the first of these tests that fails, or `HUNG`; None when all pass.

        A test is a path or the id of a test, or a random world (``world 17``).
        """
        for world in [one for one in tests if _WORLD.fullmatch(one)]:
            found = self._in_worlds(int(world.split()[1]), 1)
            if found is not None:
                return found
        named = [one for one in tests if not _WORLD.fullmatch(one)]
        return self._in_tests(named) if named else None

    def killing_world(self) -> str | None:
        """Return the first random world that shows a fault, if one does."""
        return self._in_worlds(0, N_WORLDS)

    def failing(self, tests: Sequence[str]) -> set[str]:
        """Return which of these tests fail, or are not there."""
        worlds = [one for one in tests if _WORLD.fullmatch(one)]
        bad = {one for one in worlds if self.killer([one])}
        named = [one for one in tests if one not in worlds]
        if not named:
            return bad
        code, said = self._run("pytest", *_options(), *named)
        if missing := {*_MISSING.findall(said)} & {*named}:
            # Then none was run.
            return {*bad, *missing, *self.failing([one for one in named if one not in missing])}
        failed = {*_FAILED.findall(said)} & {*named}
        if code and not failed:
            raise SystemExit(f"pytest ended with {code}:\n{said}")
        return {*bad, *(named if code is None else failed)}

    def _in_worlds(self, first: int, count: int) -> str | None:
        words = ("--first", str(first), "--worlds", str(count), "--most", "1")
        code, said = self._run("tests.ledger.driver", *words)
        if code is None:
            # The world that never ended is not told: all of them ended but that one.
            return HUNG
        found = _FAULTY_WORLD.search(said)
        if code and found is None:
            raise SystemExit(f"no world was lived:\n{said}")
        return f"world {found[1]}" if found is not None else None

    def _in_tests(self, tests: Sequence[str]) -> str | None:
        code, said = self._run("pytest", "-x", *_options(), *tests)
        if code is None:
            return tests[0] if len(tests) == 1 and "::" in tests[0] else HUNG
        if code == 0:
            return None
        found = _FAILED.search(said)
        if code != 1 or found is None:
            # Such as a mutant that cannot be imported: it is none.
            raise SystemExit(f"pytest ended with {code}:\n{said}")
        return found[1]

    def _run(self, module: str, *words: str) -> tuple[int | None, str]:
        """Return the exit code of a module, None when it never ended, and what it said."""
        with subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": str(self._root)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=_SECONDS)
                return process.returncode, said
            except subprocess.TimeoutExpired:
                # It ends its servers, if it can.
                process.send_signal(signal.SIGINT)
            try:
                said, _ = process.communicate(timeout=_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said, _ = process.communicate()
            return None, said

    def _write(self, file: Path, text: bytes) -> None:
        # A text of the same length, written within the same second, would pass for the one before.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
        # Nor may another process see half of it.
        own = file.with_suffix(".new")
        own.write_bytes(text)
        own.replace(file)


def _options() -> list[str]:
    return ["-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist"]
