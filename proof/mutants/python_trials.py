"""The mutants of order, tried by the tests that are near, in copies of the repository."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proof.mutants.copies import HUNG, Copy
from proof.mutants.python import Mutant

__all__ = ["tried"]


def tried(
    mutants: list[Mutant], killers: Mapping[str, str], n_jobs: int, progress: Path | None = None
) -> dict[str, str | None]:
    """Return what killed each mutant: a test, a random world, or `HUNG`; None for one that lives.

    The file *progress* gets each outcome at once.  What stands there is not tried again.
    """
    with tempfile.TemporaryDirectory() as folder:
        outcomes = progress or Path(folder, "outcomes")
        found = _outcomes(outcomes)
        left = [mutant for mutant in mutants if mutant.key not in found]
        trials = _Trials(killers, outcomes)
        with ThreadPoolExecutor(n_jobs) as pool:
            copies = [Path(folder, str(i)) for i in range(n_jobs)]
            list(pool.map(trials.run, copies, [left[i::n_jobs] for i in range(n_jobs)]))
        found = _outcomes(outcomes)
    return {key: found[key] for key in sorted(one.key for one in mutants)}


class _Trials:
    """All mutants of a run, for several threads."""

    def __init__(self, killers: Mapping[str, str], outcomes: Path) -> None:
        self._killers = killers
        self._outcomes = outcomes
        self._lock = threading.Lock()

    def run(self, folder: Path, mutants: list[Mutant]) -> None:
        """Try some mutants, one after another, in a copy of their own."""
        if not mutants:
            return
        copy = Copy(folder)
        known = {self._killers[one.key] for one in mutants if one.key in self._killers}
        # A test that fails on the code as it is proves nothing.
        unsound = copy.failing(sorted(known - {HUNG}))
        for mutant in mutants:
            killer = self._killers.get(mutant.key)
            trusted = [killer] if killer and killer != HUNG and killer not in unsound else []
            outcome = self._tried(copy, mutant, trusted)
            with self._lock, self._outcomes.open("a") as lines:
                lines.write(json.dumps([mutant.key, outcome]) + "\n")

    def _tried(self, copy: Copy, mutant: Mutant, trusted: list[str]) -> str | None:
        with copy.having(mutant):
            if trusted and copy.killer(trusted):
                return trusted[0]
        for is_near in (True, False):
            with copy.having(mutant):
                found = copy.killer(mutant.near) if is_near else copy.killing_world()
            if found is not None and (found == HUNG or not copy.failing([found])):
                return found
        return None


def _outcomes(file: Path) -> dict[str, str | None]:
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(json.loads(line) for line in lines)
