"""Metrics for Prometheus: the state of a namespace, asked of the ledger when somebody scrapes.

What has happened is counted in the ledger, too, so one exporter tells of all processes, also of
those that were killed.  What Celery's own exporters count is theirs, such as how many tasks ended
and how long they took.

The package prometheus_client is imported only when it is needed: the extra ``metrics``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from celery import Celery

from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.views import FullStatus
from celery_reliable.orders import OrderKind

__all__ = ["FLEET", "UP", "FleetCollector", "Metric", "registry_of"]


@dataclass(frozen=True)
class Metric:
    """A metric, and how its value is read.

    Attributes:
        name: without the ``_total`` of a counter.
        text: what it says, for people.
        read: returns the number of a status, or None where there is none to report; with labels, a
            number for each value of the label, or for each tuple of values.
        labels: names of its labels; empty: it is one number.
        is_counter: it only grows.
    """

    name: str
    text: str
    read: Callable[[Any], Any]
    labels: tuple[str, ...] = ()
    is_counter: bool = False

    def families(self, status: FullStatus | None) -> Iterator[Any]:
        """Yield the metric as prometheus_client has it; nothing where there is no number."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = self.read(status)
        if found is None:
            return
        family_of = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        family = family_of(self.name, self.text, labels=self.labels)
        for words, value in (found if self.labels else {(): found}).items():
            values = words if isinstance(words, tuple) else (words,)
            # Anybody may name a task or a queue.
            names = [word.encode("utf-8", "backslashreplace").decode() for word in values]
            family.add_metric(names, float(value))
        yield family


def _total(kind: str, text: str, *labels: str) -> Metric:
    """Return how often an event happened, by its labels."""
    at = [("kind", "task", "cause", "reason").index(one) for one in labels]

    def read(status: FullStatus) -> Mapping[tuple[str, ...], int]:
        found: Counter[tuple[str, ...]] = Counter()
        for told, count in status.totals.items():
            if told[0] == kind:
                found[tuple(told[index] for index in at)] += count
        return found

    return Metric(f"reliable_{kind}", text, read, labels, is_counter=True)


def _orders(status: FullStatus) -> Mapping[str, int]:
    found = Counter(one.kind for one in status.orders if one.in_force)
    return {kind.value: found[kind] for kind in OrderKind}


#: Whether the ledger could be reached; of a status, or None.
UP = Metric(
    "reliable_up", "Whether the ledger could be reached.", lambda status: status is not None
)

#: Of a status.
FLEET = (
    Metric(
        "reliable_tasks",
        "Tasks by state; those that wait are estimated by a sample where there are very many.",
        lambda status: status.tasks,
        ("state",),
    ),
    Metric(
        "reliable_dead_letters",
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
    _total("task_lost", "Attempts lost.", "task", "cause"),
    _total("task_recovered", "Attempts that follow a loss.", "task"),
    _total("task_buried", "Tasks dead-lettered.", "task", "reason"),
    _total("task_fenced", "Attempts that came too late to end.", "task"),
    _total("task_skipped", "Tasks skipped over their object.", "task"),
    _total("dead_letter_replayed", "Dead letters replayed.", "task"),
    _total("worker_declared_dead", "Workers declared dead.", "cause"),
)


def registry_of(app: Celery, **limits: float) -> Any:
    """Return a registry with the state of the fleet, asked when it is scraped.

    *limits*: from when on something is wrong, as the parameters of `Desk.status`.  Raises
    ConfigurationError without prometheus_client.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise ConfigurationError(
            "Metrics need the package prometheus_client, which is not installed: "
            'pip install "celery-reliable[metrics]".'
        ) from None
    registry = CollectorRegistry()
    registry.register(FleetCollector(app, **limits))
    return registry


class FleetCollector:
    """Asks for the status of a namespace with each scrape, one at a time.

    Where the ledger cannot be reached ``reliable_up`` is 0, and nothing else is told.
    """

    def __init__(self, app: Celery, **limits: float) -> None:
        self._app = app
        self._limits = limits
        self._mutex = threading.Lock()

    def describe(self) -> list[Any]:
        """Nothing is asked for when the collector is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of the fleet."""
        status = None
        # A desk is one thread's, and scrapes come from any.
        with self._mutex, suppress(ReliableError), Desk(self._app, patience_seconds=1.0) as desk:
            status = cast("FullStatus", desk.status(**self._limits))
        for one in (UP,) if status is None else (UP, *FLEET):
            yield from one.families(status)
