"""Workers as the ledger knows them, and what the death of one is put down to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Verdict", "WorkerLease"]


@dataclass(frozen=True)
class Verdict:
    """What a worker's death is put down to, as was decided when it was declared dead: once for all
    that it ran.
    """

    #: "only": its only claim; "suspect": the suspect among its claims; "opening": the message that
    #: it was opening; "ambiguous": that message or what it ran; "nobody"; empty where a worker of
    #: an older version declared it dead: each of its claims.
    word: str = ""
    #: The task among its claims that is charged; empty: none.
    charged: str = ""

    def charges(self, task_id: str) -> bool:
        """Whether the death counts as a loss of what the worker ran of a task."""
        return not self.word or self.charged == task_id

    @property
    def is_opening(self) -> bool:
        """Whether it is put down to a message that the worker was opening."""
        return self.word == "opening"

    @property
    def may_be_opening(self) -> bool:
        """Whether the worker was opening a message that had come back when it died."""
        return self.word in ("opening", "ambiguous")

    @property
    def names_suspect(self) -> bool:
        """Whether a suspect is charged, so that what ran beside it may have been wronged."""
        return self.word == "suspect"

    def sparing_all(self) -> Verdict:
        """Return the same with nobody charged."""
        return replace(self, charged="")


@dataclass(frozen=True)
class WorkerLease:
    """A worker as the ledger knows it."""

    worker: str
    is_dead: bool
    until_ms: int
    renewals: str
    client_id: str
    run_id: str
    cause: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    #: It was heard of after it had been declared dead.
    is_thawed: bool = False
    #: Of its death; means nothing before.
    verdict: Verdict = Verdict()
    #: The delivery that it was opening when it died, of a message that had come back from another
    #: dead worker; its task's id and epoch.
    opening: str = ""
    opening_id: str = ""
    opening_epoch: str = ""

    @property
    def unacked(self) -> str:
        """The worker's own unacked hash at the broker; empty where the broker has none."""
        return str(self.facts.get("room", "") or "")

    @property
    def project(self) -> tuple[str, str]:
        """The name of its app, and its broker; both empty of a worker of an older version."""
        return str(self.facts.get("app", "") or ""), str(self.facts.get("broker", "") or "")

    @property
    def looks_again(self) -> bool:
        """Whether it would begin no plain task whose message was taken from it meanwhile."""
        return bool(self.facts.get("looks_again"))

    @property
    def has_witness(self) -> bool:
        """Whether its death shows by the end of its connection; else its lease has to run out."""
        return self.client_id not in ("", "0")

    @property
    def no_witness(self) -> str:
        """Why it has no witness, as it found when it started; empty when it found nothing."""
        return str(self.facts.get("no_witness", "") or "")
