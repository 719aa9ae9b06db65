"""``python -m proof.mutants``: how many mutants the fast tests kill."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from proof.mutants.survivors import OF_ORDER, OF_SCRIPTS

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """The mutants of one kind, with all that is known about them."""

    everything: Mapping[str, Any]
    #: Those that may live, each with the reason.
    survivors: Mapping[str, str]
    #: The file with the test that killed each mutant last: it is tried first, and mostly alone.
    kept: Path
    #: Returns what kills each of some mutants, None for one that lives.  It is given these, what
    #: killed them last, how many processes there may be, and the file that keeps each outcome.
    tried: Callable[[list[Any], dict[str, str], int, Path | None], dict[str, str | None]]
    of: str

    @property
    def killers(self) -> dict[str, str]:
        """What killed each mutant last."""
        return json.loads(self.kept.read_text()) if self.kept.exists() else {}


def of_scripts() -> Kind:
    """Return the mutants of the scripts; tree-sitter has to be there."""
    from proof.mutants import lua, lua_trials

    everything = {mutant.key: mutant for mutant in lua.all_mutants()}
    n_scripts = len({key.split(":")[0] for key in everything})
    return Kind(
        everything,
        OF_SCRIPTS,
        _FOLDER / "script_killers.json",
        lambda mutants, killers, n_jobs, file: lua_trials.tried(
            mutants, killers, n_jobs, progress=file
        ),
        f"{n_scripts} scripts",
    )


def of_order() -> Kind:
    """Return the mutants of order in the package's Python."""
    from proof.mutants import python_trials
    from proof.mutants.ordering import MUTANTS

    n_modules = len({mutant.path for mutant in MUTANTS.values()})
    return Kind(
        MUTANTS,
        OF_ORDER,
        _FOLDER / "order_killers.json",
        python_trials.tried,
        f"the order in {n_modules} modules",
    )


def main(words: list[str] | None = None) -> int:
    """Try the mutants that are asked for; print the score, and each that lives without a reason.

    Returns 1 when there is one, or when what is written about a mutant is not so; 0 otherwise.
    """
    asked = _parser().parse_args(words)
    kind = of_order() if asked.python else of_scripts()
    killers = kind.killers
    chosen = [
        mutant
        for key, mutant in kind.everything.items()
        if (not asked.only or asked.only in key)
        and (asked.survivors or key not in kind.survivors)
        and not (asked.untried and key in killers)
    ]
    if asked.share and asked.share < len(chosen):
        print(f"seed {asked.seed}: {asked.share} of {len(chosen)} mutants")
        chosen = random.Random(asked.seed).sample(chosen, asked.share)
    known = {} if asked.anew else killers
    outcomes = kind.tried(chosen, known, asked.jobs, asked.progress)
    if asked.write:
        found = {key: killer for key, killer in {**killers, **outcomes}.items() if killer}
        kept = {key: killer for key, killer in found.items() if key in kind.everything}
        kind.kept.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
    alive = [key for key, killer in outcomes.items() if not killer]
    n_all, n_survivors = len(kind.everything), len(kind.survivors)
    print(f"{n_all} mutants of {kind.of}; {n_survivors} live for a reason")
    print(f"{len(outcomes)} tried: {len(outcomes) - len(alive)} killed, {len(alive)} alive")
    faults = [f"alive: {key}" for key in alive if key not in kind.survivors]
    faults += [f"killed, and said to live: {key}" for key in kind.survivors if outcomes.get(key)]
    faults += [
        f"said to live, and not there: {key}"
        for key in kind.survivors
        if key not in kind.everything
    ]
    print(*faults, sep="\n")
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    parser = argparse.ArgumentParser(prog="python -m proof.mutants", description=__doc__)
    parser.add_argument(
        "--python", action="store_true", help="the mutants of order, not of scripts"
    )
    parser.add_argument("--only", help="those whose key has this text, such as ledger/claim:")
    parser.add_argument("--share", type=int, help="so many of them, of the seed's choice")
    parser.add_argument("--seed", default=today, help="of the share (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="so many processes at a time")
    parser.add_argument(
        "--anew", action="store_true", help="do not trust which test killed a mutant before"
    )
    parser.add_argument("--untried", action="store_true", help="those that no test has killed yet")
    parser.add_argument(
        "--progress", type=Path, metavar="FILE", help="keep each outcome there; another run goes on"
    )
    parser.add_argument("--survivors", action="store_true", help="also those that are said to live")
    parser.add_argument("--write", action="store_true", help="keep which test killed which mutant")
    return parser


if __name__ == "__main__":
    sys.exit(main())
