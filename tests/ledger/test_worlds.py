"""Random worlds of all actors and faults at once keep the promises; see `tests.ledger.driver`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

#: Run side by side, where there are as many test processes.
PARTS = 8
ROOT = Path(__file__).parents[2]
_DIGEST = re.compile(r"^world \d+: [0-9a-f]{8}$", re.MULTILINE)


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


def test_a_world_is_the_same_whenever_it_is_run() -> None:
    in_a_row = run("--first", 0, "--worlds", 6, "--digests")
    alone = run("--first", 4, "--worlds", 2, "--digests")

    assert len(_DIGEST.findall(in_a_row.stdout)) == 6
    assert _DIGEST.findall(in_a_row.stdout)[4:] == _DIGEST.findall(alone.stdout)
