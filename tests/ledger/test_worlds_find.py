"""The random driver finds what it must find: faults that the package once had, put back one by one.

A mutant whose text is not there any more ends the driver another way, and fails here.
"""

from __future__ import annotations

import re

import pytest

from tests.ledger.driver.mutants import MUTANTS
from tests.ledger.driver.runs import run
from tests.ledger.test_worlds import DRIVER

pytestmark = pytest.mark.full


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_fault_is_found_that_is_put_back(name: str) -> None:
    mutant = MUTANTS[name]

    tries = [range(mutant.n_worlds)]
    if first := mutant.tried_first:
        # What is changed makes other worlds of the same seeds: then all of them are tried.
        tries.insert(0, range(first, first + 1))
    for seeds in tries:
        words = ("--first", seeds.start, "--worlds", len(seeds), "--most", 1)
        done = run(DRIVER, "--mutant", name, *words)
        found = re.search(r"^world (\d+): (.*)$", done.stdout, re.MULTILINE)
        if found is not None:
            break
    assert found is not None, f"{mutant.what}: not found\n{done.stdout}"
    assert re.search(mutant.shows, found[2]), f"another fault than {mutant.what}\n{done.stdout}"
    # It is this fault and no other that the world shows.
    control = run(DRIVER, "--mutant", name, "--control", "--first", found[1], "--worlds", 1)
    assert control.returncode == 0, control.stdout
