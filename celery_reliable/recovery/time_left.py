"""How much of its time to run an attempt has left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celery_reliable.ledger import answers
from celery_reliable.message import Envelope
from celery_reliable.model import Record
from celery_reliable.options import in_force

__all__ = ["ClockStep", "left_ms"]


@dataclass(frozen=True)
class ClockStep:
    """The last step forward of the server's clock, in ms: when it was seen, and how far it went."""

    seen_ms: int
    by_ms: int

    @classmethod
    def of(cls, begun: answers.Begun) -> ClockStep | None:
        """Return the step that the beginning of a pass was told of; None if there was none."""
        if begun.stepped_ms is None or begun.stepped_by_ms is None:
            return None
        return cls(begun.stepped_ms, begun.stepped_by_ms)


def left_ms(task: Any, record: Record, now_ms: int, step: ClockStep | None) -> int:
    """Return how many ms of its time to run a running attempt of *task* has left.

    A *step* of the server's clock while it ran is taken off.  0 if it began in the future.
    """
    ran_ms = now_ms - record.claimed_ms
    if step is not None and record.claimed_ms + step.by_ms <= step.seen_ms:
        ran_ms -= step.by_ms
    return int(_time_to_run_seconds(task, record) * 1000) - ran_ms if ran_ms >= 0 else 0


def _time_to_run_seconds(task: Any, record: Record) -> float:
    """Return the seconds that an attempt may run without a touch; 0 for no limit."""
    try:
        headers = Envelope.from_text(record.message).headers
    except ValueError:
        headers = {}
    return float(in_force(task, "time_to_run_seconds", headers) or 0)
