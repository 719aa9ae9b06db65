"""The workers that have a lease: whether they live, what they run and hold, and since when."""

from __future__ import annotations

from datetime import datetime

from celery_reliable.clock import moment, utc
from celery_reliable.ledger import Look, WorkerLook
from celery_reliable.model import Claim
from celery_reliable.operations.operation import Part
from celery_reliable.operations.views import Running, Worker
from celery_reliable.orders import Orders

__all__ = ["Workers"]

#: What one list names of what a worker runs; it is counted all the same.
_MOST_NAMED = 1000


class Workers(Part):
    """The workers of a ledger's namespace.  Raises what the ledger raises."""

    def all(self) -> list[Worker]:
        """List the workers that have a lease, what each runs, and since when."""
        looks = self.ledger.worker_looks()
        now_ms = self.ledger.workers.time_ms()
        ids = [task_id for look in looks for task_id in list(look.claims)[:_MOST_NAMED]]
        records = dict(zip(ids, self.ledger.look_all(ids), strict=True))
        orders = self.ledger.orders.read()
        return [_view(look, now_ms, records, orders) for look in looks]


def _view(look: WorkerLook, now_ms: int, records: dict[str, Look | None], orders: Orders) -> Worker:
    lease = look.lease
    left_seconds = round((lease.until_ms - now_ms) / 1000, 3)
    # Lapsed is not yet dead: only the sweeper declares that.
    state = "dead" if lease.is_dead else "alive" if left_seconds > 0 else "lapsed"
    runs = [
        _run(claim, child, records.get(task_id)) for task_id, (claim, child) in look.claims.items()
    ]
    facts, doing = lease.facts, look.doing
    return Worker(
        worker=lease.worker,
        nodename=lease.nodename,
        state=state,
        seconds_left=left_seconds,
        cause=lease.cause,
        thawed=lease.is_thawed,
        registered_at=moment(look.registered_ms),
        claims=len(look.claims),
        runs=tuple(sorted(runs, key=lambda one: (one.since or utc(now_ms), one.task_id))),
        suspect=look.suspect,
        witness=lease.has_witness,
        no_witness=lease.no_witness,
        pid=int(str(facts.get("pid") or 0)),
        pool=str(facts.get("pool") or ""),
        queues=tuple(map(str, doing.get("queues") or ())),
        slots=doing.get("slots"),
        running=doing.get("running"),
        turned_at=_ago(look.beat_ms, doing.get("turned")),
        begun_at=_ago(look.beat_ms, doing.get("moved")),
        leaving=bool(doing.get("leaving")),
        drained=orders.is_drained(lease.nodename, now_ms),
    )


def _run(claim: Claim, child: int, look: Look | None) -> Running:
    # The record may have gone on since.
    since_ms = look.record.claimed_ms if look and look.record.token == claim.token else 0
    name = look.record.name if look else ""
    return Running(claim.task_id, name, claim.attempt, child, moment(since_ms))


def _ago(beat_ms: int, seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(beat_ms - int(seconds * 1000))
