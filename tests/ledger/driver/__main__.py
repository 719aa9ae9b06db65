"""Runs worlds: ``python -m tests.ledger.driver --worlds 1000``, or one: ``--seed 42``."""

from __future__ import annotations

import argparse
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.ledger.driver import mutants
from tests.ledger.driver.runs import end_with, fix_order_of_sets


def main(words: list[str] | None = None) -> int:
    """Run what the command line says; 1 if a world has a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.ledger.driver", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this world alone, with all its steps")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first world")
    parser.add_argument("--worlds", type=int, default=100, help="how many worlds")
    parser.add_argument("--most", type=int, default=3, help="stop after so many faults")
    parser.add_argument("--digests", action="store_true", help="show what tells two runs apart")
    parser.add_argument("--backwards", action="store_true", help="begin with the last of them")
    parser.add_argument("--mutant", help="put this fault back first (`mutants`)")
    parser.add_argument(
        "--control", action="store_true", help="without the fault, in the same climate"
    )
    options = parser.parse_args(words)
    fix_order_of_sets("tests.ledger.driver")
    if options.mutant:
        mutants.put_back(options.mutant, is_control=options.control)
    from tests.ledger.driver.stage import Stage

    with tempfile.TemporaryDirectory() as directory, Stage(Path(directory)) as stage:
        if options.seed is not None:
            return int(not _run(stage, options.seed, is_traced=True))
        started, n_failed, n_run = time.monotonic(), 0, 0
        seeds = range(options.first, options.first + options.worlds)
        for seed in reversed(seeds) if options.backwards else seeds:
            n_failed += not _run(stage, seed, is_told=options.digests)
            n_run += 1
            if n_failed >= options.most:
                break
        seconds = time.monotonic() - started
        print(f"{n_run} worlds, {n_failed} faults, {seconds:.1f} s")
    return int(bool(n_failed))


def _run(stage: Any, seed: int, *, is_traced: bool = False, is_told: bool = False) -> bool:
    from tests.ledger.driver.worlds import World

    world = World(seed, stage, is_traced=is_traced)
    try:
        world.run()
    except Exception as error:
        _show(world, error)
        return False
    if is_told:
        print(f"world {seed}: {world.digest:08x}")
    if is_traced:
        print(*world.steps, sep="\n")
        print(f"world {seed} ({world.climate}): no fault, {world.wire.n_commands} commands")
    return True


def _show(world: Any, error: BaseException) -> None:
    print(*world.steps, sep="\n")
    print(f"world {world.seed} ({world.climate})")
    if not isinstance(error, AssertionError) or error.__cause__ is not None:
        traceback.print_exception(error)
    print(f"world {world.seed}: {error}")
    print(f"again: python -m tests.ledger.driver --seed {world.seed}\n", flush=True)


if __name__ == "__main__":
    end_with(main)
