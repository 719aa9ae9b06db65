"""Workers as the ledger knows them, and what the death of one is put down to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

__all__ = ["Verdict", "WorkerLease", "matches", "nodename_of", "too_long_seconds"]


def nodename_of(worker: str) -> str:
    """Return a worker's name as Celery has it: without what tells one start of it from another."""
    return worker.rpartition("/")[0] or worker


def matches(pattern: str, nodename: str) -> bool:
    """Whether a pattern means a worker.  Without an "@" it is about what stands before that in the
    worker's name, else about all of the name.
    """
    meant = nodename if "@" in pattern else nodename.partition("@")[0]
    return meant == pattern or fnmatchcase(meant, pattern)


def too_long_seconds(lease_seconds: float, sweep_seconds: float) -> float:
    """Return for how long nothing may move that is to move all the time: after that it is told."""
    return max(2 * lease_seconds, 10 * sweep_seconds)


@dataclass(frozen=True)
class Verdict:
    """Which of a worker's tasks is charged with its death.  This is decided once, when the worker
    is declared dead.
    """

    #: Why: "only" (it was the only claim), "suspect" (it was the suspect among the claims),
    #: "nobody".  Empty while it lives.
    word: str = ""
    #: The id of the task that is charged; empty: none.
    charged: str = ""

    def charges(self, task_id: str) -> bool:
        """Whether the death counts as a loss of the attempt of this task."""
        return self.charged == task_id

    @property
    def names_suspect(self) -> bool:
        """Whether a suspect is charged: what ran beside it may have been charged wrongly before."""
        return self.word == "suspect"


@dataclass(frozen=True)
class WorkerLease:
    """A worker as the ledger knows it."""

    worker: str
    is_dead: bool
    until_ms: int
    renewals: str
    client_id: str
    cause: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    #: It has called the ledger after it had been declared dead.
    is_thawed: bool = False
    #: Means nothing before it is dead.
    verdict: Verdict = Verdict()

    @property
    def unacked(self) -> str:
        """The worker's own unacked hash at the broker; empty where the broker has none."""
        return str(self.facts.get("unacked", "") or "")

    @property
    def project(self) -> tuple[str, str]:
        """The name of its app, and its broker."""
        return str(self.facts.get("app", "") or ""), str(self.facts.get("broker", "") or "")

    @property
    def nodename(self) -> str:
        """Its name for people, as Celery has it."""
        return str(self.facts.get("nodename") or nodename_of(self.worker))

    @property
    def direct_queue(self) -> str:
        """The queue that it alone consumes, so that tasks can be sent to it; empty if it has none.

        Another worker of the same name consumes it too.
        """
        return str(self.facts.get("direct", "") or "")

    @property
    def looks_again(self) -> bool:
        """Whether it begins a plain task only if the message was not taken from it meanwhile."""
        return bool(self.facts.get("looks_again"))

    @property
    def has_witness(self) -> bool:
        """Whether the end of its connection shows its death; otherwise its lease has to run out."""
        return self.client_id not in ("", "0")

    @property
    def no_witness(self) -> str:
        """Why it has no witness, as it found at its start; empty if it found no reason."""
        return str(self.facts.get("no_witness", "") or "")
