"""Random worlds of all actors and faults at once keep the promises; see `tests.ledger.driver`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Run side by side, where there are as many test processes.
PARTS = 8
ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run worlds in a process of their own: they change what modules are to it."""
    words = [str(argument) for argument in arguments]
    return subprocess.run(
        [sys.executable, "-m", "tests.ledger.driver", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_random_worlds_keep_the_promises(part: int, pytestconfig: pytest.Config) -> None:
    n_worlds = -(-pytestconfig.getoption("worlds") // PARTS)

    done = run("--first", part * n_worlds, "--worlds", n_worlds)

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_a_world_is_made_by_its_seed_alone() -> None:
    # Each in another process, after other worlds; of these some showed what the server had learnt
    # before.
    words = ("--first", 1084, "--worlds", 8, "--digests")

    there, back = run(*words), run(*words, "--backwards")

    assert told(there) == told(back)
    assert len(told(there)) == 8


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted(line for line in done.stdout.splitlines() if line.startswith("world "))
