"""Random worlds of all actors and faults at once keep the promises; see `tests.ledger.driver`."""

from __future__ import annotations

import pytest

from tests.ledger.driver.forks import Done, Forks

pytestmark = pytest.mark.full

#: Run side by side, where there are as many test processes.
PARTS = 8
DRIVER = "tests.ledger.driver.__main__"


@pytest.mark.parametrize("part", range(PARTS))
def test_random_worlds_keep_the_promises(
    part: int, forks: Forks, pytestconfig: pytest.Config
) -> None:
    n_worlds = -(-pytestconfig.getoption("worlds") // PARTS)

    done = forks.run(DRIVER, "--first", part * n_worlds, "--worlds", n_worlds)

    assert done.returncode == 0, done.printed[-8000:]


def test_a_world_is_made_by_its_seed_alone(forks: Forks) -> None:
    # Each in another process, after other worlds; of these some showed what the server had learnt
    # before.
    words = ("--first", 1084, "--worlds", 8, "--digests")

    there, back = forks.run(DRIVER, *words), forks.run(DRIVER, *words, "--backwards")

    assert told(there) == told(back)
    assert len(told(there)) == 8


def told(done: Done) -> list[str]:
    return sorted(line for line in done.printed.splitlines() if line.startswith("world "))
