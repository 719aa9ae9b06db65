"""What can happen in a world, and how often: few kinds of faults at once find more than all."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.ledger.driver import mutants

#: Kinds of faults; each world has some.
KINDS = (
    "lost", "late", "kill_child", "kill_worker", "freeze", "suspend", "stop", "skew", "clock",
    "restart", "rollback", "flush_scripts", "away", "cut", "poison", "copies", "hostile",
    "sweepers", "long", "partition", "codeless",
)  # fmt: skip


def tasks_in_line(number: int) -> tuple[str, ...]:
    """Return some of the tasks that wait for a place."""
    return (("single",), ("lined",), ("shared",), ("lined", "shared"))[number // 8 % 4]


def _beside_names(found: Climate, number: int) -> dict[str, Any]:
    """Return what some worlds have where workers are named: orders, lines."""
    which = number // 16 % 4
    if which == 0:
        return {}
    kinds = found.kinds | {"orders"} if which == 2 else found.kinds
    tasks = (*found.tasks, *tasks_in_line(number // 8)) if which == 3 else found.tasks
    return {"kinds": kinds, "ids": tuple("abcdefgijklm"), "tasks": tasks}


@dataclass
class Climate:
    """The chances of one world."""

    kinds: frozenset[str] = frozenset()
    is_apart: bool = False
    n_steps: int = 120
    haste: float = 0.6
    idleness: float = 0.1
    longest_pause_ms: float = 500
    pool_names: tuple[str, ...] = ("prefork",)
    n_hosts: int = 2
    n_slots: int = 2
    ids: tuple[str, ...] = ("a", "b")
    tasks: tuple[str, ...] = ("work",)
    outcomes: tuple[str, ...] = ("ok",)
    #: Processes take their own messages, as those of every pool do where queues and ledger are
    #: together.
    has_shifts: bool = False
    #: How many commands come late, where any do.
    delays: float = 0.03
    #: How often some things happen, in a step, where that is not as usual.
    chances: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, choice: Random) -> Climate:
        kinds = frozenset(choice.sample(KINDS, choice.choice((0, 1, 2, 2, 3, 3, 4, 5))))
        tasks = ("work", "brief", "placed", "placed_brief", "unique", "once", "light", "plain")
        outcomes = ("fail", "retry", "replace", "send_back", "long", "touch")
        found = cls(
            kinds=kinds,
            is_apart=choice.random() < 0.25,
            n_steps=choice.choice((80, 160, 240, 320)),
            haste=choice.choice((0.2, 0.6, 0.9)),
            idleness=choice.choice((0.02, 0.1, 0.3)),
            longest_pause_ms=choice.choice((500, 500, 3_000)),
            pool_names=choice.choice((("prefork",), ("prefork",), ("threads",))),
            n_hosts=choice.choice((1, 2, 2, 3)),
            n_slots=choice.choice((1, 2, 3)),
            ids=tuple("abcdef"[: choice.choice((1, 2, 3, 6))]),
            tasks=tuple(choice.sample(tasks, choice.choice((1, 2, 3)))),
            outcomes=("ok", "ok", *choice.sample(outcomes, choice.choice((0, 1, 2, 3)))),
            # Soon, while others still repeat it, or when all of that is over.
            chances={"late": choice.choice((0.08, 0.005))},
        )
        # Without a choice: the other worlds stay what they are.
        number = zlib.crc32(str(found).encode())
        if number % 8 == 0:
            found = replace(found, tasks=(*found.tasks, "paced"))
        if number % 8 == 3:
            found = replace(found, kinds=found.kinds | {"orders"})
        if number % 8 == 5:
            found = replace(found, tasks=(*found.tasks, *tasks_in_line(number)))
        if number % 16 == 1:
            found = replace(found, kinds=found.kinds | {"hiccup"})
        if number % 16 == 9:
            # Each has to find its worker, and a run one for each member.
            n_hosts = max(2, found.n_hosts)
            found = replace(found, kinds=found.kinds | {"named"}, n_hosts=n_hosts)
            found = replace(found, **_beside_names(found, number))
            if number // 64 % 2:
                found = replace(found, kinds=found.kinds | {"renamed"})
        if mutants.chosen is not None:
            return found._for(mutants.chosen)
        return replace(found, has_shifts=found.pool_names == ("prefork",) and not found.is_apart)

    def _for(self, mutant: mutants.Mutant) -> Climate:
        """Return one in which a fault shows soon."""
        kinds = frozenset(mutant.kinds) | (frozenset() if mutant.is_alone else self.kinds)
        return replace(self, kinds=kinds, **mutant.climate)

    def skew(self, choice: Random) -> float:
        """How far the wall clock of a new host is ahead."""
        if "skew" not in self.kinds:
            return 0.0
        return choice.choice((0.0, 20.0, -20.0))

    def __str__(self) -> str:
        where = "apart" if self.is_apart else "together"
        return (
            f"{' '.join(sorted(self.kinds)) or 'no faults'}; {where}; "
            f"{'in shifts; ' if self.has_shifts else ''}{self.n_hosts} workers of "
            f"{self.n_slots} ({'/'.join(self.pool_names)}); tasks {' '.join(self.tasks)}; "
            f"outcomes {' '.join(self.outcomes)}; ids {' '.join(self.ids)}"
        )
