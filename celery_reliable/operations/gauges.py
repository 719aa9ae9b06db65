"""The state of a namespace as metrics for Prometheus: a table of what each metric reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from celery_reliable.operations.views import Status
from celery_reliable.orders import OrderKind

__all__ = ["FLEET", "UP", "Metric", "encodable"]

T = TypeVar("T")


@dataclass(frozen=True)
class Metric(Generic[T]):
    """A metric, and how its value is read.

    Attributes:
        name: without the ``_total`` of a counter.
        text: what it says, for people.
        read: returns the number, or None where there is none to report; with labels, a number for
            each value of the label, or for each tuple of values.
        labels: names of its labels; empty: it is one number.
        is_counter: it only grows.
    """

    name: str
    text: str
    read: Callable[[T], Any]
    labels: tuple[str, ...] = ()
    is_counter: bool = False

    def families(self, source: T) -> Iterator[Any]:
        """Yield the metric as prometheus_client has it; nothing where there is no number."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = self.read(source)
        if found is None:
            return
        family_of = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        family = family_of(self.name, self.text, labels=self.labels)
        for words, value in (found if self.labels else {(): found}).items():
            values = words if isinstance(words, tuple) else (words,)
            family.add_metric([encodable(word) for word in values], float(value))
        yield family


def encodable(text: str) -> str:
    """Return a text as Prometheus can have it: anybody may name a task or a queue."""
    return text.encode("utf-8", "backslashreplace").decode()


def _orders(status: Status) -> Mapping[str, int]:
    found = Counter(one.kind for one in status.orders if one.in_force)
    return {kind.value: found[kind] for kind in OrderKind}


#: Whether the ledger could be reached; of a status, or None.
UP: Metric[Status | None] = Metric(
    "reliable_up", "Whether the ledger could be reached.", lambda status: status is not None
)

#: Of a status.
FLEET: tuple[Metric[Status], ...] = (
    Metric(
        "reliable_tasks",
        "Tasks that live, by state; estimated by a sample where there are very many.",
        lambda status: {name: count for name, count in status.tasks.items() if name != "dead"},
        ("state",),
    ),
    Metric("reliable_dead_letters", "Dead letters.", lambda status: status.tasks["dead"]),
    Metric(
        "reliable_dead_letters_by_reason",
        "Dead letters by reason, as far as it is known where there are very many.",
        lambda status: status.dead_by_reason,
        ("reason",),
    ),
    Metric(
        "reliable_sweeper_silence_seconds",
        "Since the sweeper's last pass ended.",
        lambda status: status.last_pass.seconds_ago,
    ),
    Metric(
        "reliable_saturation",
        "Running and waiting tasks for each slot: for autoscalers.",
        lambda status: status.saturation,
    ),
    Metric(
        "reliable_slots",
        "How many tasks living workers run at once.",
        lambda status: status.slots,
    ),
    Metric(
        "reliable_held_back",
        "Tasks that the ledger holds back, by what they wait for (object, rate, order, worker); "
        "estimated by a sample where there are very many.",
        lambda status: {
            (kind, name): count
            for kind, tasks in status.held_back.items()
            for name, count in tasks.items()
        },
        ("kind", "task"),
    ),
    Metric(
        "reliable_orders",
        "Orders of operators that hold: what is paused, struck and drained.",
        _orders,
        ("kind",),
    ),
    Metric(
        "reliable_workers", "Workers by state.", lambda status: status.workers_by_state, ("state",)
    ),
    Metric(
        "reliable_worker_running",
        "Tasks that a worker runs.",
        lambda status: {one.worker: one.busy for one in status.workers},
        ("worker",),
    ),
    Metric(
        "reliable_queue_depth",
        "Messages that wait in a queue.",
        lambda status: {one.name: one.depth for one in status.queues if one.depth is not None},
        ("queue",),
    ),
    Metric(
        "reliable_queue_oldest_seconds",
        "For how long the oldest of those waits that are popped next.",
        lambda status: {one.name: one.oldest_seconds or 0.0 for one in status.queues},
        ("queue",),
    ),
    Metric(
        "reliable_finding",
        "What `reliable status --check` finds; 1 for each.",
        lambda status: {(one.code, one.name, one.severity): 1 for one in status.findings},
        ("code", "name", "severity"),
    ),
)
