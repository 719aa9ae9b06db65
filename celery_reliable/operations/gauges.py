"""The state of a namespace as metrics for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from celery_reliable.findings import OpenRows
from celery_reliable.operations.views import FullStatus
from celery_reliable.orders import OrderKind

__all__ = ["counter", "encodable", "gauge", "gauges_of", "gauges_of_rows", "labelled"]


def gauges_of(status: FullStatus) -> Iterator[Any]:
    """Yield the metrics of a status."""
    yield from _of_tasks(status)
    yield from _of_waiting(status)
    yield from _of_orders(status)
    yield from _of_workers(status)
    yield from _of_queues(status)


def _of_tasks(status: FullStatus) -> Iterator[Any]:
    states = {name: count for name, count in status.tasks.items() if name != "dead"}
    yield labelled(
        "reliable_tasks",
        "Tasks that live, by state; estimated by a sample where there are very many.",
        ("state",),
        {(name,): float(count) for name, count in states.items()},
    )
    yield gauge("reliable_dead_letters", "Dead letters.", status.tasks["dead"])
    yield labelled(
        "reliable_dead_letters_by_reason",
        "Dead letters by reason, as far as it is known where there are very many.",
        ("reason",),
        {(name,): float(count) for name, count in status.dead_by_reason.items()},
    )
    yield counter(
        "reliable_dead_letters_trimmed",
        "Dead letters that were deleted, since there were more than DEAD_LETTER_MAX.",
        status.trimmed,
    )
    silent = status.last_pass.seconds_ago
    if silent is not None:
        yield gauge(
            "reliable_sweeper_silence_seconds", "Since the sweeper's last pass ended.", silent
        )
    if status.saturation is not None:
        yield gauge(
            "reliable_saturation",
            "Running and waiting tasks for each slot: for autoscalers.",
            status.saturation,
        )
    yield gauge("reliable_slots", "How many tasks living workers run at once.", status.slots)
    if status.ledger.used_bytes is not None:
        yield gauge(
            "reliable_ledger_used_bytes", "Memory of the ledger's Redis.", status.ledger.used_bytes
        )
    if status.ledger.maxmemory_bytes:
        yield gauge(
            "reliable_ledger_maxmemory_bytes",
            "The limit of that.",
            status.ledger.maxmemory_bytes,
        )


def _of_waiting(status: FullStatus) -> Iterator[Any]:
    yield gauge(
        "reliable_waiting_for_worker",
        "Tasks that wait as none of the workers that they name is alive.",
        status.waiting_for_worker,
    )
    yield labelled(
        "reliable_limited",
        "Tasks that wait for their moment, as their rate is limited.",
        ("task",),
        {(name,): float(count) for name, count in status.limited.items()},
    )
    yield labelled(
        "reliable_in_line",
        "Tasks that stand in line for a place of their object; estimated by a sample where there "
        "are very many.",
        ("task",),
        {(name,): float(count) for name, count in status.in_line.items()},
    )
    yield labelled(
        "reliable_places",
        "Places of a task of which so many run at a time in the whole fleet (`at_most`).",
        ("task",),
        {(one.task,): float(one.places) for one in status.places},
    )
    yield labelled(
        "reliable_places_taken",
        "How many of those are taken.",
        ("task",),
        {(one.task,): float(one.taken) for one in status.places},
    )


def _of_orders(status: FullStatus) -> Iterator[Any]:
    counts = Counter(one.kind.value for one in status.orders if one.in_force)
    yield labelled(
        "reliable_orders",
        "Orders of operators that hold: what is paused, struck and drained.",
        ("kind",),
        {(kind.value,): float(counts[kind.value]) for kind in OrderKind},
    )
    yield gauge(
        "reliable_tasks_struck",
        "Tasks that are parked as an operator has struck them.",
        sum(one.parked for one in status.orders),
    )


def _of_workers(status: FullStatus) -> Iterator[Any]:
    yield labelled(
        "reliable_workers",
        "Workers by state.",
        ("state",),
        {(name,): float(count) for name, count in status.workers_by_state.items()},
    )
    yield labelled(
        "reliable_worker_lease_age_seconds",
        "Since a worker renewed its lease last.",
        ("worker",),
        {(one.worker,): max(0.0, one.lease_age_seconds) for one in status.workers},
    )
    yield labelled(
        "reliable_worker_running",
        "Tasks that a worker runs.",
        ("worker",),
        {(one.worker,): float(one.busy) for one in status.workers},
    )


def _of_queues(status: FullStatus) -> Iterator[Any]:
    yield labelled(
        "reliable_queue_depth",
        "Messages that wait in a queue.",
        ("queue",),
        {(one.name,): float(one.depth) for one in status.queues if one.depth is not None},
    )
    yield labelled(
        "reliable_queue_oldest_seconds",
        "For how long the oldest of those waits that are popped next.",
        ("queue",),
        {(one.name,): one.oldest_seconds or 0.0 for one in status.queues},
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


def counter(name: str, text: str, value: float) -> Any:
    """Return a metric that is a number which only grows."""
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, text, value=float(value))


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
