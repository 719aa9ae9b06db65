"""``python -m proof.mutants``: how many mutants the fast tests kill."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proof.mutants import lua
from proof.mutants.survivors import SURVIVORS
from proof.mutants.trial import Job

_ROOT = Path(__file__).parents[2]

#: The test that killed each mutant last, by its key: it is tried first, and mostly alone.
KILLERS = Path(__file__).with_name("killers.json")

#: The fast tests.  The random worlds are not among them: they find much, and take minutes.
TESTS = ("tests/ledger",)
LEFT_OUT = ("tests/ledger/test_worlds.py", "tests/ledger/test_worlds_find.py")


def main(words: list[str] | None = None) -> int:
    """Try the mutants that are asked for; print the score, and each that lives without a reason.

    Returns 1 when there is one, or when what is written about a mutant is not so; 0 otherwise.
    """
    asked = _parser().parse_args(words)
    killers: dict[str, str] = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    everything = {mutant.key: mutant for mutant in lua.all_mutants()}
    chosen = [
        mutant
        for key, mutant in everything.items()
        if (not asked.only or asked.only in key) and (asked.survivors or key not in SURVIVORS)
    ]
    outcomes = tried(chosen, {} if asked.anew else killers, asked.jobs, progress=asked.progress)
    if asked.write:
        found = {key: killer for key, killer in {**killers, **outcomes}.items() if killer}
        kept = {key: killer for key, killer in found.items() if key in everything}
        KILLERS.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
    alive = [key for key, killer in outcomes.items() if not killer]
    n_scripts = len({key.split(":")[0] for key in everything})
    print(f"{len(everything)} mutants of {n_scripts} scripts; {len(SURVIVORS)} live for a reason")
    print(f"{len(outcomes)} tried: {len(outcomes) - len(alive)} killed, {len(alive)} alive")
    faults = [f"alive: {key}" for key in alive if key not in SURVIVORS]
    faults += [f"killed, and said to live: {key}" for key in SURVIVORS if outcomes.get(key)]
    faults += [f"said to live, and not there: {key}" for key in SURVIVORS if key not in everything]
    print(*faults, sep="\n")
    return 1 if faults else 0


def tried(
    mutants: list[lua.Mutant],
    killers: dict[str, str],
    n_jobs: int,
    tests: Sequence[str] = TESTS,
    progress: Path | None = None,
) -> dict[str, str | None]:
    """Return what killed each mutant: a test, or `HUNG`; None for one that lives.

    The file *progress* gets a line with each outcome at once.  What stands there is not tried again.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(n_jobs) as pool:
        outcomes = progress or Path(folder, "outcomes")
        parts = [mutants[i::n_jobs] for i in range(n_jobs)]
        list(pool.map(lambda part: _try(part, killers, tests, outcomes), parts))
        found = _outcomes(outcomes)
    return {key: found[key] for key in sorted(one.key for one in mutants)}


def _try(
    mutants: list[lua.Mutant], killers: dict[str, str], tests: Sequence[str], outcomes: Path
) -> None:
    """Append the outcome of each mutant that has none yet."""
    used = outcomes.with_name(outcomes.name + ".used")
    with tempfile.TemporaryDirectory() as folder:
        while left := [mutant for mutant in mutants if mutant.key not in _outcomes(outcomes)]:
            job = Job(left, killers, str(outcomes), str(used))
            done = _run(job.hand_over(Path(folder, "job")), tests)
            if left[0].key not in _outcomes(outcomes):
                raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}")


def _outcomes(file: Path) -> dict[str, str | None]:
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(json.loads(line) for line in lines)


def _run(environ: dict[str, str], tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    plugins = ("proof.mutants.trial", "no:cacheprovider", "no:xdist")
    ignored = (f"--ignore={file}" for file in LEFT_OUT)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *(f"-p{one}" for one in plugins), "-q", *ignored, *tests],
        cwd=_ROOT,
        env={**os.environ, **environ},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.mutants", description=__doc__)
    parser.add_argument("--only", help="those whose key has this text, such as ledger/claim:")
    parser.add_argument("--jobs", type=int, default=2, help="so many processes at a time")
    parser.add_argument(
        "--anew", action="store_true", help="do not trust which test killed a mutant before"
    )
    parser.add_argument(
        "--progress", type=Path, metavar="FILE", help="keep each outcome there; another run goes on"
    )
    parser.add_argument("--survivors", action="store_true", help="also those that are said to live")
    parser.add_argument("--write", action="store_true", help="keep which test killed which mutant")
    return parser


if __name__ == "__main__":
    sys.exit(main())
