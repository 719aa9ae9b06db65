"""Two actors in all orders of their commands; see `tests.ledger.driver.interleavings`."""

from __future__ import annotations

import re

import pytest

from tests.ledger.driver.interleavings import orders
from tests.ledger.driver.mutants import LOOSENED
from tests.ledger.driver.runs import run

pytestmark = pytest.mark.full

ORDERS = "tests.ledger.driver.interleavings"


def test_each_order_is_lived_once() -> None:
    moved = set()

    def lived(order: list[int]) -> list[int]:
        """Two commands of the one, three of the other; who is done moves no more."""
        left, taken, who, which = [2, 3], [], "", 0
        while any(left):
            if all(left):
                taken.append(order[len(taken)] if len(taken) < len(order) else 0)
                which ^= taken[-1]
            else:
                which = 0 if left[0] else 1
            left[which] -= 1
            who += str(which)
        moved.add(who)
        return taken

    # Of five places two are the first one's.
    assert len(list(orders(lived))) == len(moved) == 10
    # 11222, and what begins with the other: 22211.
    assert len(list(orders(lived, 1))) == 2 + 1


def test_a_pair_keeps_the_promises_in_each_order() -> None:
    done = run(ORDERS, "--pair", "revoke / settle")

    assert done.returncode == 0, done.stdout[-8000:]
    found = re.search(
        r"^revoke / settle: (\d+) orders \(all of .*\), 0 faults$", done.stdout, re.MULTILINE
    )
    assert found is not None
    assert int(found[1]) > 1


@pytest.mark.parametrize("pair", sorted(LOOSENED))
def test_some_order_shows_a_script_that_compares_less(pair: str) -> None:
    done = run(ORDERS, "--pair", pair, "--loosened", "--changes", "1")

    assert done.returncode == 1, done.stdout[-2000:]
    assert re.search(LOOSENED[pair].shows, done.stdout), done.stdout[-2000:]
