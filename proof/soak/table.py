"""What each fault of the world may cost: written down before anything was tried.

It follows from `docs/promises.rst` and `docs/limits.rst`. `docs/proof.rst` shows the same table; a
test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["FAULTS", "LOSES_DATA", "NOTHING", "ONE", "SENTINEL", "STRAY", "WorldFault", "of_set_up"]

#: One server, with an append-only file, and a network in between.
ONE = "one"
#: A master, a replica and a Sentinel; results on a server apart.
SENTINEL = "sentinel"

#: A key that should not be there when all has ended.
STRAY = "stray"

NOTHING = "nothing"

#: Which tasks may pay.  `lost suffix`: from the moment up to which the server's data is safe to the
#: moment when the server was gone.
PUBLISHED = "published in the lost suffix"
#: Whose claim is lost is refused its end; where results are apart it is stored by then.
ENDED = "begun or settled in the lost suffix"
BEGUN = "begun in the lost suffix"
OF_OBJECT = "of objects of which a task began in the lost suffix"
HEADERS = "a header ended, or was published, in the lost suffix"
ZOMBIES = "attempts that this worker ran, from when it was declared dead"
#: Between the last look at its lease and the body there is a moment.
CLAIMED = "what this worker had claimed before, and began as it went on"
#: Who published it is remembered for an hour.
LATE = "what it put off for an hour by its clock, if Redis went back to older data"
HELD = "locks of objects whose tasks began or ended in the lost suffix"


@dataclass(frozen=True)
class WorldFault:
    """A fault, what happens, and what may come of it.

    `allows` names what the checker may find, and of which tasks; it may find nothing else.
    """

    name: str
    what: str
    set_ups: tuple[str, ...] = (ONE, SENTINEL)
    allows: Mapping[str, str] = field(default_factory=dict)

    @property
    def cost(self) -> str:
        """What it may cost, as the page says it."""
        told = (f"*{kind}*: {who}" for kind, who in self.allows.items())
        return "; ".join(told) or NOTHING


#: What a server that goes back to older data may cost: `as-durable-as-redis`.
_SUFFIX = {
    "lost": PUBLISHED,
    "unfinished": PUBLISHED,
    "ran again": ENDED,
    "settled twice": ENDED,
    "attempts": BEGUN,
    # An attempt whose claim is lost runs on beside what is begun in its place.
    "overlap": BEGUN,
    "object": OF_OBJECT,
    "chord missing": HEADERS,
    STRAY: HELD,
}
#: `frozen-not-dead`, and the other half of `never-two`.
_ZOMBIE = {
    "overlap": ZOMBIES,
    "object": ZOMBIES,
    "attempts": CLAIMED,
    "ran again": CLAIMED,
}

FAULTS: dict[str, WorldFault] = {
    fault.name: fault
    for fault in (
        WorldFault("latency", "each reply comes late, by up to half a second", (ONE,)),
        WorldFault(
            "pause", "Redis stands still (SIGSTOP, or CLIENT PAUSE), up to two leases", (ONE,)
        ),
        WorldFault("oom", "Redis is full: ``maxmemory`` without eviction, writes are refused"),
        WorldFault("read-only", "Redis takes no writes, as the replicas that it needs are gone"),
        WorldFault("script-flush", "Redis forgets all scripts (SCRIPT FLUSH)"),
        WorldFault(
            "aof",
            "Redis is killed, its file is cut to what was written up to two seconds before, and it "
            "starts again",
            (ONE,),
            _SUFFIX,
        ),
        WorldFault("redis-clock", "the clock of Redis steps by an hour either way", (ONE,)),
        WorldFault(
            "worker-clock",
            "the clock of a worker steps by an hour either way, and back",
            (ONE,),
            {"ran again": LATE, "settled twice": LATE, "attempts": LATE},
        ),
        WorldFault(
            "partition",
            "nothing passes between one worker and Redis, in one direction, for up to three leases",
            (ONE,),
            _ZOMBIE,
        ),
        WorldFault(
            "failover",
            "a master is killed whose replica lags, and the replica is promoted",
            (SENTINEL,),
            _SUFFIX,
        ),
        WorldFault("freeze", "a worker stands still (SIGSTOP), up to three leases", allows=_ZOMBIE),
        WorldFault("worker-kill", "a worker and its processes are killed"),
        WorldFault("child-kill", "a pool process is killed"),
        WorldFault("warm-stop", "a worker is stopped (SIGTERM), and started again"),
        WorldFault("cold-stop", "a worker is stopped at once (SIGQUIT), and started again"),
    )
}

#: After these the server has older data than it had.
LOSES_DATA = frozenset(name for name, fault in FAULTS.items() if "lost" in fault.allows)


def of_set_up(set_up: str) -> list[str]:
    """The faults that can happen to a set-up."""
    return [name for name, fault in FAULTS.items() if set_up in fault.set_ups]
