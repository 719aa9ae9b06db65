"""What came of a drill."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DrillReport"]


@dataclass(frozen=True)
class DrillReport:
    """What came of one drill.

    Attributes:
        kind: what was done.
        published: how many tasks the drill had, of which somebody was told that they are published.
        recovery_seconds: from what was done until all that it had hit ran again; with "poison"
            until it was a dead letter, with "broker-restart" until the first task began after the
            command had ended; None when that did not come to pass.
        runs: how often bodies began.
        lost: how many tasks had no run that came to its end, or no end in the ledger.
        doubled: how often two runs of one task went on at once, on workers of which none had been
            declared dead.
        zombies: how many runs went on after their worker had been declared dead (`freeze`): they
            change nothing in the ledger, and what they do elsewhere is not hindered.
        dead_letters: how many ended so; one is right with "poison".
        problem: why it came to no end; empty when it did.
    """

    kind: str
    published: int
    recovery_seconds: float | None
    runs: int
    lost: int
    doubled: int
    zombies: int
    dead_letters: int
    problem: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing was lost or doubled, and all came to an end."""
        return not (self.lost or self.doubled or self.problem)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {**asdict(self), "is_well": self.is_well}
