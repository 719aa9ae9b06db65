"""All orders of two actors' commands: ``python -m tests.ledger.driver.interleavings``, or some.

A world is brought to where two actors stand, each before a command to the server.  From there
nobody else moves, until both are done; then the world comes to rest, and is looked at as any other.
The next world is brought to the same point, and goes on in another order, until there is none left.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.ledger.driver import mutants
from tests.ledger.driver.runs import end_with, fix_order_of_sets
from tests.support.progress import Progress


def orders(run: Callable[[list[int]], list[int]], most: int | None = None) -> Iterator[list[int]]:
    """Have *run* live each order once; it is given how one begins, and returns how it was.

    An order says, each time that both could move, whether the other one does (1) or not (0): first
    the first one moves.  *most*: so many changes at most, for an order has very many others.
    """
    order: list[int] = []
    while True:
        taken = run(order)
        yield list(taken)
        while taken:
            if taken.pop() == 0 and (most is None or sum(taken) < most):
                taken.append(1)
                break
        else:
            return
        order = taken


def main(words: list[str] | None = None) -> int:
    """Run what the command line says; 1 if an order has a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.ledger.driver.interleavings")
    parser.add_argument("--pair", help="this one alone")
    parser.add_argument(
        "--changes",
        type=int,
        default=2,
        help="all orders with so many changes from one to the other at most (2); -1: all",
    )
    parser.add_argument("--share", type=int, help="so many orders of each pair, by chance")
    parser.add_argument("--seed", type=int, default=0, help="which share")
    parser.add_argument(
        "--progress", type=Path, metavar="FILE", help="keep each order there; another run goes on"
    )
    parser.add_argument("--order", help="live this order, and show it: 0110")
    parser.add_argument(
        "--loosened",
        action="store_true",
        help="with a script that compares less (`mutants.LOOSENED`)",
    )
    options = parser.parse_args(words)
    fix_order_of_sets("tests.ledger.driver.interleavings")
    if options.loosened:
        mutants.put_in(mutants.LOOSENED[options.pair])
    from tests.ledger.driver.pairs import PAIRS
    from tests.ledger.driver.stage import Stage

    names = [options.pair] if options.pair else list(PAIRS)
    n_faults = n_orders = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, Stage(Path(directory)) as stage:
        for name in names:
            if options.order is not None:
                return int(not _lives(stage, name, [int(one) for one in options.order], True)[1])
            outcomes = list(_tried(stage, name, options))
            what = "by chance" if options.share else f"all of {options.changes} changes or fewer"
            what = "all" if not options.share and options.changes < 0 else what
            print(f"{name}: {len(outcomes)} orders ({what}), {outcomes.count(False)} faults")
            n_orders, n_faults = n_orders + len(outcomes), n_faults + outcomes.count(False)
    seconds = time.monotonic() - began
    print(f"{len(names)} pairs, {n_orders} orders, {n_faults} faults, {seconds:.1f} s")
    return int(bool(n_faults))


def _tried(stage: Any, name: str, options: argparse.Namespace) -> Iterator[bool]:
    outcomes: list[bool] = []
    # Orders are asked for in the same way each time, so the first ones are those that are kept.
    asked_for = [name, options.changes, options.share, options.seed]
    progress = Progress(options.progress)
    kept = [order for *asked, order in progress.rows if asked == asked_for]

    def run(order: list[int]) -> list[int]:
        if len(outcomes) < len(kept):
            taken, is_well = kept[len(outcomes)]
        else:
            taken, is_well = _lives(stage, name, order)
            progress.add([*asked_for, [taken, is_well]])
        outcomes.append(is_well)
        return taken

    if options.share is None:
        for _ in orders(run, options.changes if options.changes >= 0 else None):
            yield outcomes[-1]
            if outcomes.count(False) >= 3:
                return
        return
    choice = Random(f"{options.seed} {name}")
    for _ in range(options.share):
        odds = choice.choice((0.05, 0.2, 0.5))
        run([int(choice.random() < odds) for _ in range(200)])
        yield outcomes[-1]


def _lives(
    stage: Any, name: str, order: list[int], is_shown: bool = False
) -> tuple[list[int], bool]:
    from tests.ledger.driver.meeting import Meeting
    from tests.ledger.driver.pairs import PAIRS

    world = Meeting(stage, PAIRS[name], order, is_traced=is_shown)
    try:
        world.run()
    except Exception as error:
        print(*world.steps, sep="\n")
        words = "".join(map(str, world.taken))
        print(f"{name}: {error!r}\nagain: --pair '{name}' --order {words}\n", flush=True)
        return world.taken, False
    if is_shown:
        print(*world.steps, sep="\n")
        print(f"{name}: no fault")
    return world.taken, True


if __name__ == "__main__":
    end_with(main)
