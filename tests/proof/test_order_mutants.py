"""A mutant of order is made of the text as it is, and of each it is said what becomes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from proof.mutants.__main__ import Kind, of_order, of_scripts
from proof.mutants.ordering import MUTANTS
from proof.mutants.python import Mutant
from proof.mutants.python_trials import tried

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


#: So many may live; fewer is better.
MOST_ALIVE: Mapping[str, int] = {"order": 20, "scripts": 0}
#: Of so many nobody has tried yet whether a test sees them.
MOST_UNTRIED: Mapping[str, int] = {"order": 0, "scripts": 0}


def is_there(test: str) -> bool:
    if re.fullmatch("world [0-9]+", test):
        return True
    path, *_, name = test.split("[")[0].split("::")
    file = ROOT / path
    return file.is_file() and f"def {name}(" in file.read_text()


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.key)
def test_each_can_be_made(mutant: Mutant) -> None:
    compile(mutant.text(), mutant.path, "exec")


@pytest.mark.parametrize("kind", ["order", "scripts"])
def test_of_each_it_is_said_which_test_kills_it_or_why_it_may_live(kind: str) -> None:
    if kind == "scripts":
        pytest.importorskip("tree_sitter_lua", reason="tox run -e mutants installs it")
    of: Kind = of_scripts() if kind == "scripts" else of_order()

    told = [*of.killers, *of.survivors]

    assert len(told) == len({*told}), "killed, and said to live"
    assert {*told} <= {*of.everything}, "said of what is not there"
    untried = of.everything.keys() - {*told}
    assert len(untried) <= MOST_UNTRIED[kind], "python -m proof.mutants --untried --write"
    assert all(reason.endswith(".") for reason in of.survivors.values())
    assert len(of.survivors) <= MOST_ALIVE[kind]


@pytest.mark.parametrize("name", ["order", "script"])
def test_each_test_that_kills_one_is_there(name: str) -> None:
    told = json.loads((ROOT / f"proof/mutants/{name}_killers.json").read_text())

    missing = {one for one in told.values() if not is_there(one)}

    assert not missing


def test_one_dies_by_the_test_that_killed_it_or_by_another_that_sees_it() -> None:
    seen = MUTANTS["a stop is put off for ever"]
    file = "tests/unit/test_beats.py"
    named = f"{file}::test_a_pool_that_nobody_stopped_before_the_shutdown_stops_when_asked"
    blind = f"{file}::test_that_is_not_there"

    other = MUTANTS["a stop that comes too early is forgotten"]

    found = tried([seen, other], {seen.key: named, other.key: blind}, 1)

    assert found[seen.key] == named
    # That is not there any more, so another is looked for.
    assert str(found[other.key]).startswith(file)
