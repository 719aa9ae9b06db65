"""The names of the ledger's keys.  All share one hash slot, by ``{namespace:0}``."""

from __future__ import annotations

__all__ = ["Keys", "line_of", "slots"]


class Keys:
    """The key names of one namespace.

    There is one partition, 0, on a single Redis; the partition is part of the names so that more
    can be added for a cluster without renaming anything.
    """

    def __init__(self, namespace: str, partition: int = 0) -> None:
        #: What all begin with.
        self.begin = prefix = f"{{{namespace}:{partition}}}:"
        #: ZSET: task id -> when somebody must look, in ms.
        self.due = f"{prefix}due"
        #: ZSET: task id -> when it was buried, in ms.
        self.dead = f"{prefix}dead"
        #: STREAM: what operators did.
        self.audit = f"{prefix}audit"
        #: STREAM: what happened to tasks and workers.
        self.happened = f"{prefix}happened"
        #: HASH: "<minute since 1970> <name>" -> how many attempts were "processed",
        #: "failed" or "lost" in it.
        self.minutes = f"{prefix}minutes"
        #: ZSET of score 0: "<group> <buried_ms, 15 digits> <id>" of dead letters.
        self.grouped = f"{prefix}grouped"
        #: HASH: group -> what its letters have in common; up to where the letters have
        #: been looked at, and the index.
        self.groups = f"{prefix}groups"
        #: HASH: task id -> what happened to a task that has ended, as JSON.
        self.ended = f"{prefix}ended"
        #: ZSET: task id -> when it ended, in ms; of those in `ended`.
        self.ended_at = f"{prefix}ended_at"
        #: HASH: generation, run_id, broker, passed_ms, grace_ms, ahead_ms, ahead_count,
        #: report, trimmed, trimmed_ms.
        self.meta = f"{prefix}meta"
        #: HASH: offset_ms and latest_ms of the ledger's clock.
        self.clock = f"{prefix}clock"
        #: STRING with a TTL: the pass that runs now.
        self.sweep = f"{prefix}pass"
        #: HASH: order id -> the order, as JSON; and `version`.
        self.orders = f"{prefix}orders"
        #: ZSET: worker -> when its lease runs out, in ms.
        self.workers = f"{prefix}workers"
        #: ZSET: the own queue of a worker -> when a worker registered for it, in ms.
        self.direct = f"{prefix}direct"
        #: ZSET: task id -> the moment for which it waits, in ms.
        self.later = f"{prefix}later"
        #: LIST with a TTL: not empty when the first of those moments has changed.
        self.bell = f"{prefix}bell"
        #: STRING with a TTL: the worker that lets out what waits for its moment.
        self.waker = f"{prefix}waker"
        #: ZSET: run -> when a pass must look whether it is over, in ms.
        self.runs = f"{prefix}runs"
        #: A key that never exists, for a script that needs none in that place. An empty
        #: name would fit no key pattern of a user with few rights.
        self.none = f"{prefix}none"

    def record(self, task_id: str) -> str:
        """HASH: what the ledger knows of one task."""
        return f"{self.begin}task:{task_id}"

    def run(self, run: str) -> str:
        """HASH: task id of a member -> its worker; and what the run is."""
        return f"{self.begin}run:{run}"

    def worker(self, worker: str) -> str:
        """HASH: one worker's lease."""
        return f"{self.begin}worker:{worker}"

    def claims(self, worker: str) -> str:
        """HASH: task id -> "attempt pid token" of what the worker runs."""
        return f"{self.begin}claims:{worker}"

    def taken(self, worker: str) -> str:
        """HASH: task id -> "attempt token" of what was taken from the worker while it may live."""
        return f"{self.begin}taken:{worker}"

    def stops(self, worker: str) -> str:
        """HASH: task id -> "attempt how token" of what the worker is to stop."""
        return f"{self.begin}stops:{worker}"

    def lock(self, object_key: str) -> str:
        """STRING: "<attempt>:<id>" of the task that holds an object, or "kept:<id>" with a TTL."""
        return f"{self.begin}lock:{object_key}"

    def rate(self, key: str) -> str:
        """STRING with a TTL: when the last moment of a rate was given, and the next one, in us."""
        return f"{self.begin}rate:{key}"

    def waiting(self, reason: str) -> str:
        """ZSET: task id -> when it was published, in ms; of those that wait for that, as their
        records say it: "object <key>" or "order <id>".  A HASH for "workers": task id -> which
        may run it, as JSON.
        """
        return f"{self.begin}waiting:{reason}"

    def sent(self, sender: str) -> str:
        """STRING with a TTL: a sender's last epoch, and its answer if that was not "recorded"."""
        return f"{self.begin}sent:{sender}"


def slots(object_key: str, places: int) -> list[str]:
    """Return what the places of an object are called; each has a lock of its own.

    The first is called as the object: it is the lock of an object that one task has at a time.
    """
    return [object_key, *(f"{object_key}#{n}" for n in range(2, places + 1))]


def line_of(object_key: str) -> str:
    """Return the object whose place this is: places but the first have a number behind it."""
    return object_key.partition("#")[0]
