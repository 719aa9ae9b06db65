"""What a Redis server has counted, from one INFO: a look at all of it at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

__all__ = ["BROKER_DB", "LOCK_DB", "RESULT_DB", "ServerCounts"]

BROKER_DB = 0
RESULT_DB = 1
LOCK_DB = 2


@dataclass(frozen=True)
class ServerCounts:
    """Counts since the server began, or between two looks."""

    #: Results that are stored, so the tasks that have run.
    results: int
    cpu_seconds: float
    #: Times that the server read from a client: a command, or a pipeline that is sent as a whole,
    #: is read at once as long as it is smaller than 16 kB.  Commands whose replies nobody waits for
    #: (SUBSCRIBE) may be read together when the server is late.
    trips: int
    #: Executed, those inside MULTI and inside scripts among them.
    commands: int

    @classmethod
    def now(cls, client: redis.Redis) -> ServerCounts:
        """Ask the server."""
        return cls.from_info(client.info("all"))

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> ServerCounts:
        """Read the reply to ``INFO all``, as redis-py gives it."""
        return cls(
            results=int(info.get(f"db{RESULT_DB}", {}).get("keys", 0)),
            cpu_seconds=float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
            trips=int(info["total_reads_processed"]),
            commands=sum(
                int(told["calls"]) for name, told in info.items() if name.startswith("cmdstat_")
            ),
        )

    def since(self, earlier: ServerCounts, *, polls: int = 0) -> ServerCounts:
        """Return what was counted between two looks, without the looks themselves.

        *polls* is how many other commands the looker has sent in between.
        """
        # A look is itself counted, as a reading before it answers, as a command after it.
        own = polls + 1
        return ServerCounts(
            results=self.results - earlier.results,
            cpu_seconds=self.cpu_seconds - earlier.cpu_seconds,
            trips=self.trips - earlier.trips - own,
            commands=self.commands - earlier.commands - own,
        )
