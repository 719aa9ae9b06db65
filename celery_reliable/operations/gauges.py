"""The state of a namespace as metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from celery_reliable.findings import OpenRows
from celery_reliable.operations.views import FullStatus
from celery_reliable.orders import OrderKind

__all__ = ["GAUGES", "encodable", "gauge", "gauges_of", "gauges_of_rows", "labelled"]


#: The name, the label, the text, and how it is read from a status: one number, where there is no
#: label, or a number for each value of the label; None: there is nothing to tell.
GAUGES: tuple[
    tuple[str, str, str, Callable[[FullStatus], float | Mapping[str, float] | None]], ...
] = (
    (
        "reliable_tasks",
        "state",
        "Tasks that live, by state; estimated by a sample where there are very many.",
        lambda status: {name: n for name, n in status.tasks.items() if name != "dead"},
    ),
    ("reliable_dead_letters", "", "Dead letters.", lambda status: status.tasks["dead"]),
    (
        "reliable_dead_letters_by_reason",
        "reason",
        "Dead letters by reason, as far as it is known where there are very many.",
        lambda status: status.dead_by_reason,
    ),
    (
        "reliable_sweeper_silence_seconds",
        "",
        "Since the sweeper's last pass ended.",
        lambda status: status.last_pass.seconds_ago,
    ),
    (
        "reliable_saturation",
        "",
        "Running and waiting tasks for each slot: for autoscalers.",
        lambda status: status.saturation,
    ),
    (
        "reliable_slots",
        "",
        "How many tasks living workers run at once.",
        lambda status: status.slots,
    ),
    (
        "reliable_ledger_used_bytes",
        "",
        "Memory of the ledger's Redis.",
        lambda status: status.ledger.used_bytes,
    ),
    (
        "reliable_ledger_maxmemory_bytes",
        "",
        "The limit of that.",
        lambda status: status.ledger.maxmemory_bytes or None,
    ),
    (
        "reliable_waiting_for_worker",
        "",
        "Tasks that wait as none of the workers that they name is alive.",
        lambda status: status.waiting_for_worker,
    ),
    (
        "reliable_limited",
        "task",
        "Tasks that wait for their moment, as their rate is limited.",
        lambda status: status.limited,
    ),
    (
        "reliable_in_line",
        "task",
        "Tasks that stand in line for a place of their object; estimated where there are many.",
        lambda status: status.in_line,
    ),
    (
        "reliable_places",
        "task",
        "Places of a task of which so many run at a time in the whole fleet (`at_most`).",
        lambda status: {one.task: one.places for one in status.places},
    ),
    (
        "reliable_places_taken",
        "task",
        "How many of those are taken.",
        lambda status: {one.task: one.taken for one in status.places},
    ),
    (
        "reliable_orders",
        "kind",
        "Orders of operators that hold: what is paused, struck and drained.",
        lambda status: {
            kind.value: sum(one.in_force and one.kind is kind for one in status.orders)
            for kind in OrderKind
        },
    ),
    (
        "reliable_tasks_struck",
        "",
        "Tasks that are parked as an operator has struck them.",
        lambda status: sum(one.parked for one in status.orders),
    ),
    ("reliable_workers", "state", "Workers by state.", lambda status: status.workers_by_state),
    (
        "reliable_worker_lease_age_seconds",
        "worker",
        "Since a worker renewed its lease last.",
        lambda status: {one.worker: max(0.0, one.lease_age_seconds) for one in status.workers},
    ),
    (
        "reliable_worker_running",
        "worker",
        "Tasks that a worker runs.",
        lambda status: {one.worker: one.busy for one in status.workers},
    ),
    (
        "reliable_queue_depth",
        "queue",
        "Messages that wait in a queue.",
        lambda status: {one.name: one.depth for one in status.queues if one.depth is not None},
    ),
    (
        "reliable_queue_oldest_seconds",
        "queue",
        "For how long the oldest of those waits that are popped next.",
        lambda status: {one.name: one.oldest_seconds or 0.0 for one in status.queues},
    ),
)


def gauges_of(status: FullStatus) -> Iterator[Any]:
    """Yield the metrics of a status."""
    from prometheus_client.core import CounterMetricFamily

    for name, label, text, read in GAUGES:
        found = read(status)
        if isinstance(found, Mapping):
            yield labelled(name, text, (label,), {(of,): float(n) for of, n in found.items()})
        elif found is not None:
            yield gauge(name, text, found)
    yield CounterMetricFamily(
        "reliable_dead_letters_trimmed",
        "Dead letters that were deleted, since there were more than DEAD_LETTER_MAX.",
        value=float(status.trimmed),
    )


def gauges_of_rows(rows: Sequence[OpenRows]) -> Iterator[Any]:
    """Yield the metrics of rows with tasks."""
    yield labelled(
        "reliable_rows",
        "Rows whose task waits or runs, by model and status; 10 000 of a model: so many, or more.",
        ("model", "status"),
        {
            (one.model, status): float(count)
            for one in rows
            for status, count in (("waiting", one.waiting), ("running", one.running))
        },
    )
    yield labelled(
        "reliable_rows_unseen",
        "Those at which nobody has looked for ten minutes.",
        ("model",),
        {(one.model,): float(one.unseen) for one in rows},
    )


def gauge(name: str, text: str, value: float) -> Any:
    """Return a metric that is one number."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=float(value))


def labelled(
    name: str, text: str, labels: tuple[str, ...], values: dict[tuple[str, ...], float]
) -> Any:
    """Return a metric that is a number for each value of its labels."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=labels)
    for words, value in values.items():
        family.add_metric([encodable(word) for word in words], value)
    return family


def encodable(text: str) -> str:
    """Return a text as Prometheus can have it: anybody may name a task or a queue."""
    return text.encode("utf-8", "backslashreplace").decode()
