"""The mutants of scripts, tried by tests of the ledger in forks of a few processes of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proof.mutants import lua
from proof.mutants.trial import Job

__all__ = ["tried"]

_ROOT = Path(__file__).parents[2]

#: The fast tests.  The random worlds are not among them: they find much, and take minutes.
TESTS = ("tests/ledger",)
LEFT_OUT = ("tests/ledger/test_worlds.py", "tests/ledger/test_worlds_find.py")


def tried(
    mutants: list[lua.Mutant],
    killers: dict[str, str],
    n_jobs: int,
    tests: Sequence[str] = TESTS,
    progress: Path | None = None,
) -> dict[str, str | None]:
    """Return what killed each mutant: a test; None for one that lives.

    The file *progress* gets each outcome at once.  What stands there is not tried again.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(n_jobs) as pool:
        outcomes = progress or Path(folder, "outcomes")
        parts = [mutants[i::n_jobs] for i in range(n_jobs)]
        list(pool.map(lambda part: _try(part, killers, tests, outcomes), parts))
        found = _outcomes(outcomes)
    return {key: found[key] for key in sorted(one.key for one in mutants)}


def _try(
    mutants: list[lua.Mutant], killers: dict[str, str], tests: Sequence[str], outcomes: Path
) -> None:
    """Append the outcome of each mutant that has none yet."""
    used = outcomes.with_name(outcomes.name + ".used")
    with tempfile.TemporaryDirectory() as folder:
        while left := [mutant for mutant in mutants if mutant.key not in _outcomes(outcomes)]:
            job = Job(left, killers, str(outcomes), str(used))
            done = _run(job.hand_over(Path(folder, "job")), tests)
            if left[0].key not in _outcomes(outcomes):
                raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}")


def _outcomes(file: Path) -> dict[str, str | None]:
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(json.loads(line) for line in lines)


def _run(environ: dict[str, str], tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    plugins = ("proof.mutants.trial", "no:cacheprovider", "no:xdist")
    ignored = (f"--ignore={file}" for file in LEFT_OUT)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *(f"-p{one}" for one in plugins), "-q", *ignored, *tests],
        cwd=_ROOT,
        env={**os.environ, **environ},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
