"""What waits in each queue: how many messages, how long already, and who consumes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from celery import Celery

from celery_reliable.ledger import Ledger, Look
from celery_reliable.model import Record, State
from celery_reliable.operations import shapes
from celery_reliable.operations.messages import envelope_of
from celery_reliable.operations.times import iso
from celery_reliable.operations.workers import Workers, WorkerView
from celery_reliable.recovery import MOST_BYTES, BrokerView

__all__ = ["QueueView", "Queues"]

#: Messages looked at of those that are popped next, of each priority.
_LOOKED_AT = 5
#: Records looked at for the queues that nobody here has declared, and for the states of all.
_SAMPLED = 500
#: Messages of them.
_MESSAGES = 100


@dataclass(frozen=True)
class QueueView:
    """One queue.

    Attributes:
        depth: how many messages wait; None: the broker does not tell, or has no such queue.
        by_priority: the same by priority, of those that have one; on a Redis only.
        oldest_ms: since when the oldest waits that is among the next to be popped, by the server's
            clock; 0: nothing waits, or nothing is known of what waits (tasks of other bases).
        oldest_seconds: the same as an age.
        workers: names of living workers that say that they consume it.
        consumers: how many consumers the broker knows; None: it does not tell, as a Redis.
        is_paused: an operator's order lets nobody take from it.
    """

    name: str
    depth: int | None
    by_priority: Mapping[int, int] = field(default_factory=dict)
    oldest_ms: int = 0
    oldest_seconds: float | None = None
    workers: tuple[str, ...] = ()
    consumers: int | None = None
    is_paused: bool = False

    @property
    def waiting(self) -> str:
        """How many messages wait, for people, who see here, too, that nobody may take them."""
        depth = "?" if self.depth is None else str(self.depth)
        return f"{depth}, paused" if self.is_paused else depth

    def as_dict(self) -> shapes.Queue:
        """The same as plain JSON values."""
        return {
            "name": self.name,
            "depth": self.depth,
            "by_priority": {str(one): depth for one, depth in self.by_priority.items()},
            "oldest_since": iso(self.oldest_ms),
            "oldest_seconds": self.oldest_seconds,
            "workers": list(self.workers),
            "consumers": self.consumers,
            "paused": self.is_paused,
        }


class Queues:
    """The queues of an app, looked at once.  Raises what the ledger raises, and kombu's errors."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView) -> None:
        self._app = app
        self._ledger = ledger
        self._broker = broker
        #: What was looked at; once.
        self._sampled: tuple[int, list[Look]] | None = None

    def all(self) -> list[QueueView]:
        """Return the queues that the app declares, that workers consume, or that recorded tasks
        wait for (of 500 that were looked at), by name.
        """
        return self.of(Workers(self._ledger, self._broker).all(with_broker=False))

    def of(self, workers: Sequence[WorkerView]) -> list[QueueView]:
        """Return the same; *workers* were looked at before."""
        alive = [one for one in workers if one.state == "alive"]
        _, looks = self._sample()
        names = {*self._app.amqp.queues, *self._queues_of(looks)}
        names.update(queue for one in alive for queue in one.queues)
        now_ms = self._ledger.numbers().now_ms
        if self._broker.is_redis:
            views = [self._view(name, alive, now_ms) for name in sorted(names)]
        else:
            views = [
                QueueView(name, depth, workers=_consumed_by(name, alive), consumers=consumers)
                for name, declared in self._broker.declared_all(sorted(names)).items()
                for depth, consumers in [declared or (None, None)]
            ]
        orders = self._ledger.orders.read()
        return [replace(one, is_paused=orders.is_paused(one.name, now_ms)) for one in views]

    def states(self) -> tuple[dict[str, int], bool]:
        """Return how many records are "queued", "parked", "waiting" and "owed", and whether all
        were looked at; else these are estimates, by a sample evenly over all times.
        """
        total, looks = self._sample()
        counts = dict.fromkeys(("queued", "parked", "waiting", "owed"), 0)
        for look in looks:
            kind = "owed" if look.record.state is State.DEAD else look.record.state.value
            # What runs is counted by its claim.
            if kind in counts:
                counts[kind] += 1
        if total <= _SAMPLED:
            return counts, True
        scale = total / max(1, len(looks))
        return {kind: round(count * scale) for kind, count in counts.items()}, False

    def in_line(self) -> dict[str, int]:
        """Return how many tasks stand in line for a place, by their names: of those looked at, or
        an estimate by them.
        """
        total, looks = self._sample()
        counts = Counter(look.record.name for look in looks if look.record.in_line_of)
        scale = 1.0 if total <= _SAMPLED else total / max(1, len(looks))
        return {name: round(count * scale) for name, count in counts.items()}

    def _sample(self) -> tuple[int, list[Look]]:
        if self._sampled is None:
            total, ids = self._ledger.sample_due(_SAMPLED)
            looks = [look for look in self._ledger.look_all(ids) if look is not None]
            self._sampled = total, looks
        return self._sampled

    def _queues_of(self, looks: Sequence[Look]) -> tuple[str, ...]:
        waiting = [look.record.task_id for look in looks if look.record.state is State.QUEUED]
        step = max(1, len(waiting) // _MESSAGES)
        found: set[tuple[str, str]] = set()
        n_bytes = 0
        for one in self._ledger.find_in_groups(waiting[::step], most_bytes=MOST_BYTES):
            record = one.record if one.is_readable else None
            if record is None:
                continue
            found |= _address_of(record)
            n_bytes += len(record.message)
            if n_bytes > MOST_BYTES:
                break
        return tuple(sorted({name for where in found for name in self._broker.reached(*where)}))

    def _view(self, name: str, alive: Sequence[WorkerView], now_ms: int) -> QueueView:
        steps = self._broker.steps(name, _LOOKED_AT)
        heads = [task_id for step in steps for task_id in step.head if task_id]
        since = [
            max(look.record.published_ms, look.record.sent_ms)
            for look in self._ledger.look_all(heads)
            if look is not None and look.record.state is State.QUEUED
        ]
        oldest_ms = min(since, default=0)
        return QueueView(
            name,
            sum(step.depth for step in steps),
            by_priority={step.priority: step.depth for step in steps if step.depth},
            oldest_ms=oldest_ms,
            oldest_seconds=max(0.0, round((now_ms - oldest_ms) / 1000, 3)) if oldest_ms else None,
            workers=_consumed_by(name, alive),
        )


def _consumed_by(queue: str, alive: Sequence[WorkerView]) -> tuple[str, ...]:
    return tuple(one.nodename for one in alive if queue in one.queues)


def _address_of(record: Record) -> set[tuple[str, str]]:
    envelope = envelope_of(record)
    if envelope is None or not envelope.routing_key:
        return set()
    return {(envelope.exchange, envelope.routing_key)}
