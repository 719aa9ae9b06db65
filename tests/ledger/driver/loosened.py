"""Scripts that compare less than they must: some order of a pair has to show each of them."""

from __future__ import annotations

from tests.ledger.driver.mutants import Mutant

_ITS = "if found[1] ~= 'running' or found[2] ~= ARGV[2] or found[8] ~= ARGV[6] then"


def _loosened(what: str, script: str, old: str, new: str, shows: str) -> Mutant:
    return Mutant(what, [(f"ledger/lua/{script}.lua", old, new)], shows)


#: By the pair that has to show it.
LOOSENED = {
    "claim / claim": _loosened(
        "a task is claimed that runs",
        "claim",
        "if state == 'running' then",
        "if false then",
        "begins after attempt|two live bodies",
    ),
    "slow sweeper": _loosened(
        "an attempt is lost twice",
        "lose",
        _ITS,
        "if not found[1] then",
        "a has 2 losses, and 1 deaths",
    ),
}
