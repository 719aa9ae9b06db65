"""Random worlds of all actors and faults at once keep the promises; see `tests.ledger.driver`."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from tests.ledger.driver.runs import run

pytestmark = pytest.mark.full

#: Run side by side, where there are as many test processes.
PARTS = 8
DRIVER = "tests.ledger.driver"


@pytest.mark.parametrize("part", range(PARTS))
def test_random_worlds_keep_the_promises(part: int, pytestconfig: pytest.Config) -> None:
    n_worlds = -(-pytestconfig.getoption("worlds") // PARTS)

    done = run(DRIVER, "--first", part * n_worlds, "--worlds", n_worlds)

    assert done.returncode == 0, done.stdout[-8000:]


def test_a_world_is_made_by_its_seed_alone() -> None:
    # Each in another process, after other worlds; of these some showed what the server had learnt
    # before.
    words = ("--first", 1084, "--worlds", 8, "--digests")

    there, back = run(DRIVER, *words), run(DRIVER, *words, "--backwards")

    assert told(there) == told(back)
    assert len(told(there)) == 8


def told(done: CompletedProcess[str]) -> list[str]:
    return sorted(line for line in done.stdout.splitlines() if line.startswith("world "))
