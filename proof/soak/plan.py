"""What happens when: drawn from a seed, and from nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from proof.soak.table import ONE, SENTINEL, of_set_up

__all__ = ["CLOCKS", "LEASE_SECONDS", "WORKERS", "Step", "World", "draw", "worlds"]

LEASE_SECONDS = 3.0
#: The last one alone has the tasks that name their workers.
WORKERS = ("one", "two", "gpu-three")
#: Of so many worlds that follow one another each kind is there.
SET_UPS = (ONE, ONE, SENTINEL)

_PAUSE_SECONDS = (1.0, 4.0)
#: How long a fault lasts, in seconds; the others are over at once.
_LASTS = {
    "latency": (2.0, 8.0),
    "pause": (0.3, 2 * LEASE_SECONDS),
    "oom": (0.5, 5.0),
    "read-only": (0.5, 5.0),
    "aof": (0.1, 2.0),
    "redis-clock": (2.0, 6.0),
    "worker-clock": (2.0, 8.0),
    "partition": (0.5, 3 * LEASE_SECONDS),
    "failover": (0.1, 2.0),
    "freeze": (0.5, 3 * LEASE_SECONDS),
}
#: What is killed stays away for so long.
_AWAY_SECONDS = (0.0, 4.0)
_WAYS = {
    "pause": ("SIGSTOP", "CLIENT PAUSE"),
    "partition": ("requests", "replies"),
    "redis-clock": ("forward", "back"),
    "worker-clock": ("forward", "back"),
}
#: These need libfaketime.
CLOCKS = frozenset(("redis-clock", "worker-clock"))


@dataclass(frozen=True)
class Step:
    """One fault: when it comes, after the one before; how long it lasts; whom it befalls."""

    after_seconds: float
    fault: str
    seconds: float
    worker: str
    way: str
    #: Chooses among what nobody knows before: the processes of a pool.
    number: int

    def __str__(self) -> str:
        way = f", {self.way}" if self.way else ""
        return f"+{self.after_seconds:.2f} s {self.fault} {self.seconds:.2f} s, {self.worker}{way}"


@dataclass(frozen=True)
class World:
    """One set-up, and all that befalls it."""

    name: str
    set_up: str
    steps: Sequence[Step]


def worlds(seed: int, minutes: float, faults: Sequence[str], world_minutes: float) -> list[World]:
    """Draw worlds that last so long in all; each begins with empty servers.

    Each of these faults comes as often as the others, as far as the set-up can have it.
    """
    count = max(1, round(minutes / world_minutes))
    seconds = minutes * 60 / count
    kinds = [kind for kind in SET_UPS if set(of_set_up(kind)) & set(faults)]
    if not kinds:
        raise ValueError(f"no such faults: {', '.join(faults)}")
    found = []
    for number in range(count):
        dice = random.Random(f"soak {seed} {number}")
        kind = kinds[number % len(kinds)]
        found.append(World(f"{seed}-{number}", kind, _steps(dice, kind, faults, seconds)))
    return found


def _steps(dice: random.Random, set_up: str, faults: Sequence[str], seconds: float) -> list[Step]:
    steps: list[Step] = []
    bag: list[str] = []
    passed = 0.0
    while passed < seconds:
        if not bag:
            bag = [name for name in of_set_up(set_up) if name in faults]
            dice.shuffle(bag)
        step = draw(dice, bag.pop())
        steps.append(step)
        passed += step.after_seconds + step.seconds
    return steps


def draw(dice: random.Random, fault: str) -> Step:
    """Draw one step of this fault."""
    return Step(
        after_seconds=dice.uniform(*_PAUSE_SECONDS),
        fault=fault,
        seconds=dice.uniform(*_LASTS.get(fault, _AWAY_SECONDS)),
        worker=dice.choice(WORKERS),
        way=dice.choice(_WAYS.get(fault, ("",))),
        number=dice.randrange(1 << 16),
    )
