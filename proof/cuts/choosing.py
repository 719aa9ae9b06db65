"""At which points a scenario is cut: made of what was counted in plays without a cut."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proof.cuts.points import Point

__all__ = ["READS", "Counted", "is_wait", "points_of", "shuffled"]

#: What changes nothing on the server. So it is the same to all whether it was executed: it is cut
#: before only.
READS = frozenset(
    (
        "CLIENT", "EXISTS", "GET", "HELLO", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET",
        "HSCAN", "HSTRLEN", "LLEN", "LRANGE", "MULTI", "PING", "PSUBSCRIBE", "PUNSUBSCRIBE",
        "SCRIPT", "SELECT", "SMEMBERS", "SUBSCRIBE", "TIME", "UNSUBSCRIBE", "ZCARD",
        "ZRANGE", "ZRANGEBYSCORE", "ZREVRANGE", "ZSCORE", "ZSCAN",
    )
)  # fmt: skip

#: What an idle worker has sent before it knows of anything to do: it waits for the bell, and for
#: messages, and a process takes the next one as soon as its task has ended.
_WAITS = ("BRPOP", "BLMOVE", "take")

#: These have one thread that sends.
_SINGLE = ("publisher", "child")

Key = tuple[str, str]


@dataclass(frozen=True)
class Counted:
    """How often each role sent each command, and what was under way when the counting began."""

    counts: Mapping[Key, int]
    under_way: set[Key]


def points_of(scenario: str, counted: Counted, idle: Mapping[Key, int]) -> list[Point]:
    """Return the points of a scenario.

    What an idle worker sends again and again (*idle*) is cut the first time.
    """
    found = []
    for key, count in sorted(counted.counts.items()):
        role, command = key
        last = min(count, 1) if idle.get(key) else count
        for number in range(1, last + 1):
            for time, effect in _ways(role, command, number):
                was_sent = number == 1 and key in counted.under_way
                # The last wait of all gets no reply.
                has_reply = not is_wait(command) or number < count
                if not (was_sent if time == "before" else not has_reply):
                    found.append(Point(scenario, role, command, number, time, effect))
    return found


def is_wait(command: str) -> bool:
    """Whether a command is sent before there is a message for it."""
    return command.rpartition("+")[2] in _WAITS


def shuffled(points: list[Point], seed: str) -> list[Point]:
    """Return them in an order that the seed decides."""
    chosen = sorted(points)
    random.Random(seed).shuffle(chosen)
    return chosen


def _ways(role: str, command: str, number: int) -> Iterator[tuple[str, str]]:
    if command in READS:
        yield ("before", "reset")
        # A process with one thread that dies here has died after what it sent before.
        if role not in _SINGLE:
            yield ("before", "kill")
    else:
        yield from (("before", "reset"), ("after", "reset"), ("after", "kill"))
        if role not in _SINGLE or number == 1:
            yield ("before", "kill")
