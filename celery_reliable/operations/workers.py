"""The workers that have a lease: whether they live, what they run and hold, and since when."""

from __future__ import annotations

from dataclasses import dataclass, replace

from celery_reliable.ledger import Ledger, Look, WorkerLook
from celery_reliable.operations import shapes
from celery_reliable.operations.times import iso
from celery_reliable.recovery import BrokerView

__all__ = ["RunningView", "WorkerView", "Workers"]

#: What one list names of what a worker runs; it is counted all the same.
_MOST_NAMED = 1000


@dataclass(frozen=True)
class RunningView:
    """One task that a worker runs.  ``pid`` is of the process that claimed it: it runs it, or is
    the worker's main process.
    """

    task_id: str
    name: str
    attempt: int
    pid: int
    #: By the server's clock, in ms; 0: the record does not say.
    since_ms: int

    def as_dict(self) -> shapes.Running:
        """The same as plain JSON values."""
        return {
            "task_id": self.task_id,
            "name": self.name,
            "attempt": self.attempt,
            "pid": self.pid,
            "since": iso(self.since_ms),
        }


@dataclass(frozen=True)
class WorkerView:
    """One worker, as the ledger knows it.

    Attributes:
        worker: its id: new for every start, and when it comes back from the dead.
        nodename: its name for people.
        state: "alive"; "lapsed": its lease has run out, and nobody has declared it dead yet;
            "dead": it was declared dead, and what it held is being recovered.
        seconds_left: of its lease; negative: for so long it has not been heard of in time.
        cause: why it was declared dead: "lapsed" or "connection"; else empty.
        is_thawed: it was heard of after it had been declared dead.
        runs: the tasks that it runs, the longest first; what runs of other bases is not known.
        claims: how many those are.
        unacked: how many messages it was delivered and has not acknowledged, whether it runs them
            or not; None: its broker does not tell.
        suspect: the task among those that may have killed another worker; empty for none.
        opening: the task whose message, which came back from a dead worker, it opens just now.
        has_witness: whether its death shows by the end of its connection.
        no_witness: why not; empty where it has one.
        pid: of its main process.
        pool: the kind of its pool: "prefork", "solo", "thread", "gevent".
        queues: that it consumes; empty too while that is not known.
        own_queue: the queue that it alone consumes, so that tasks can name it; empty for none.
        slots: how many tasks it runs at once at the most; None: not known, as before its first
            heartbeat.
        running: how many it runs, of any base, as it told last.
        turned_ms: when its main loop turned last, as it told with its last beat; 0: not known.
        begun_ms: when it began a task last, or started; likewise.
        lease_age_seconds: since it renewed its lease.
        is_leaving: its shutdown has begun: it finishes what it runs.
        is_drained: an operator's order lets it take nothing new.
    """

    worker: str
    nodename: str
    state: str
    seconds_left: float
    cause: str
    is_thawed: bool
    registered_ms: int
    runs: tuple[RunningView, ...]
    claims: int
    unacked: int | None
    suspect: str
    opening: str
    has_witness: bool
    no_witness: str
    pid: int
    pool: str
    queues: tuple[str, ...] = ()
    slots: int | None = None
    running: int | None = None
    turned_ms: int = 0
    begun_ms: int = 0
    lease_age_seconds: float = 0.0
    is_leaving: bool = False
    is_drained: bool = False
    own_queue: str = ""

    @property
    def idle_slots(self) -> int | None:
        """How many more tasks it could run at once; None: not known."""
        if self.slots is None or self.running is None:
            return None
        return max(0, self.slots - max(self.running, self.claims))

    @property
    def condition(self) -> str:
        """Its state for people, who see here, too, that it is leaving or drained."""
        if self.state != "alive":
            return self.state
        return "leaving" if self.is_leaving else "drained" if self.is_drained else "alive"

    def as_dict(self) -> shapes.Worker:
        """The same as plain JSON values."""
        return {
            "worker": self.worker,
            "nodename": self.nodename,
            "state": self.state,
            "seconds_left": self.seconds_left,
            "cause": self.cause,
            "thawed": self.is_thawed,
            "registered_at": iso(self.registered_ms),
            "claims": self.claims,
            "runs": [one.as_dict() for one in self.runs],
            "unacked": self.unacked,
            "suspect": self.suspect,
            "opening": self.opening,
            "witness": self.has_witness,
            "no_witness": self.no_witness,
            "pid": self.pid,
            "pool": self.pool,
            "queues": list(self.queues),
            "own_queue": self.own_queue,
            "slots": self.slots,
            "running": self.running,
            "turned_at": iso(self.turned_ms),
            "begun_at": iso(self.begun_ms),
            "leaving": self.is_leaving,
            "drained": self.is_drained,
        }


class Workers:
    """The workers of a ledger's namespace.  Raises what the ledger raises."""

    def __init__(self, ledger: Ledger, broker: BrokerView) -> None:
        self._ledger = ledger
        self._broker = broker

    def all(self, *, with_broker: bool = True) -> list[WorkerView]:
        """Return all workers that have a lease or are not yet forgotten, by name.

        *with_broker*: ask the broker, too, what each was delivered.  Raises kombu's errors then.
        """
        looks = self._ledger.worker_looks()
        now_ms = self._ledger.workers.time_ms()
        ids = [task_id for look in looks for task_id in list(look.claims)[:_MOST_NAMED]]
        records = dict(zip(ids, self._ledger.look_all(ids), strict=True))
        orders = self._ledger.orders.read()
        views = [
            _view(look, now_ms, records, self._unacked(look) if with_broker else None)
            for look in looks
        ]
        return [replace(one, is_drained=orders.is_drained(one.nodename, now_ms)) for one in views]

    def get(self, worker: str) -> WorkerView | None:
        """Return one worker, by its id, or None; the broker is not asked."""
        views = self.all(with_broker=False)
        return next((one for one in views if one.worker == worker), None)

    def _unacked(self, look: WorkerLook) -> int | None:
        if not self._broker.is_redis or not look.lease.unacked:
            return None
        return len(self._broker.unacked(look.lease.unacked))


def _view(
    look: WorkerLook, now_ms: int, records: dict[str, Look | None], unacked: int | None
) -> WorkerView:
    lease = look.lease
    left_seconds = round((lease.until_ms - now_ms) / 1000, 3)
    # Lapsed is not yet dead: only the sweeper declares that.
    state = "dead" if lease.is_dead else "alive" if left_seconds > 0 else "lapsed"
    runs = []
    for task_id, (claim, child) in look.claims.items():
        found = records.get(task_id)
        # The record may have gone on since.
        is_his = found is not None and found.record.token == claim.token
        runs.append(
            RunningView(
                task_id,
                found.record.name if found is not None else "",
                claim.attempt,
                child,
                found.record.claimed_ms if found is not None and is_his else 0,
            )
        )
    facts, doing = lease.facts, look.doing
    pid = facts.get("pid")
    return WorkerView(
        worker=lease.worker,
        nodename=lease.nodename,
        state=state,
        seconds_left=left_seconds,
        cause=lease.cause,
        is_thawed=lease.is_thawed,
        registered_ms=look.registered_ms,
        runs=tuple(sorted(runs, key=lambda one: (one.since_ms or now_ms, one.task_id))),
        claims=len(look.claims),
        unacked=unacked,
        suspect=look.suspect,
        opening=lease.opening_id or lease.opening,
        has_witness=lease.has_witness,
        no_witness=lease.no_witness,
        pid=pid if isinstance(pid, int) else 0,
        pool=str(facts.get("pool") or ""),
        queues=tuple(map(str, doing.get("queues") or ())),
        slots=_number(doing.get("slots")),
        running=_number(doing.get("running")),
        turned_ms=_ago_ms(look.beat_ms, doing.get("turned")),
        begun_ms=_ago_ms(look.beat_ms, doing.get("moved")),
        is_leaving=bool(doing.get("leaving")),
        own_queue=lease.direct_queue,
        lease_age_seconds=round(look.lease_ms / 1000 - left_seconds, 3),
    )


def _number(told: object) -> int | None:
    """Return a count that a worker told; a later version may tell something else."""
    return told if isinstance(told, int) else None


def _ago_ms(beat_ms: int, seconds: object) -> int:
    return beat_ms - int(seconds * 1000) if isinstance(seconds, (int, float)) else 0
