"""What happened, by the hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from celery import states

from celery_reliable.ledger import Ledger
from celery_reliable.operations import shapes
from celery_reliable.operations.times import iso

__all__ = ["Hour", "last_hours"]

_HOUR_MS = 60 * 60 * 1000
_HOURS = 25


@dataclass(frozen=True)
class Hour:
    """How often what happened within an hour of the server's clock.

    What began and ended is of reliable tasks, as workers of this release tell with their
    heartbeats: of a worker that is killed the last beat's worth is missing.  All else is counted by
    whoever tells of the event, if the ledger answers him then.

    Attributes:
        start_ms: when it began.
        started: attempts that began, in workers' pools.
        ended: attempts that ended, by Celery's state.
        lost: attempts that were lost, by cause.
        recovered: attempts that began after a loss.
        buried: tasks that were dead-lettered, by reason.
        fenced: attempts that came too late to end.
        skipped: tasks that were skipped over their object.
        given_back: messages that went back to their queues, as their worker could not begin them.
        replayed: dead letters.
        discarded: dead letters, by operators.
        workers_died: workers that were declared dead.
        workers_started: leases that were taken.
        workers_left: workers that ended and gave back their lease.
        passes: passes of the sweeper that had something to do.
    """

    start_ms: int
    started: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    recovered: int = 0
    buried: Mapping[str, int] = field(default_factory=dict)
    fenced: int = 0
    skipped: int = 0
    given_back: int = 0
    replayed: int = 0
    discarded: int = 0
    workers_died: int = 0
    workers_started: int = 0
    workers_left: int = 0
    passes: int = 0

    @property
    def failed(self) -> int:
        """Attempts that ended in FAILURE."""
        return self.ended.get(states.FAILURE, 0)

    def as_dict(self) -> shapes.Hour:
        """The same as plain JSON values."""
        return {
            "start": iso(self.start_ms),
            "started": self.started,
            "ended": dict(self.ended),
            "failed": self.failed,
            "lost": dict(self.lost),
            "recovered": self.recovered,
            "buried": dict(self.buried),
            "fenced": self.fenced,
            "skipped": self.skipped,
            "given_back": self.given_back,
            "replayed": self.replayed,
            "discarded": self.discarded,
            "workers_died": self.workers_died,
            "workers_started": self.workers_started,
            "workers_left": self.workers_left,
            "passes": self.passes,
        }


def last_hours(ledger: Ledger) -> tuple[Hour, ...]:
    """Return the last 24 hours and the one that runs, the oldest first, in one round trip.  Raises
    what the ledger raises.
    """
    now_ms, counted = ledger.happenings.hours(_HOURS)
    first_ms = now_ms - now_ms % _HOUR_MS - (_HOURS - 1) * _HOUR_MS
    return tuple(_hour(first_ms + at * _HOUR_MS, one) for at, one in enumerate(counted))


def _hour(start_ms: int, counted: Mapping[str, int]) -> Hour:
    def apart(kind: str) -> dict[str, int]:
        prefix = f"{kind}:"
        names = sorted(name for name in counted if name.startswith(prefix))
        return {name.removeprefix(prefix): counted[name] for name in names}

    def of(kind: str) -> int:
        return counted.get(kind, 0)

    return Hour(
        start_ms,
        started=of("started"),
        ended=apart("ended"),
        lost=apart("task_lost"),
        recovered=of("task_recovered"),
        buried=apart("task_buried"),
        fenced=of("task_fenced"),
        skipped=of("task_skipped"),
        given_back=of("given_back"),
        replayed=of("dead_letter_replayed"),
        discarded=of("dead_letter_discarded"),
        workers_died=of("worker_declared_dead"),
        workers_started=of("worker_registered"),
        workers_left=of("worker_left"),
        passes=of("pass_finished"),
    )
