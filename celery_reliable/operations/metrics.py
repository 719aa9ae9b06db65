"""Metrics for Prometheus: what a namespace looks like, and what each process counts.

The first is asked of the ledger when somebody scrapes (`FleetCollector`).  The second is counted
from the package's signals (`install`): where that is not called, nothing is counted, and nothing is
paid.  What Celery's own exporters count is theirs, such as how many tasks ended and how long they
took.

The package prometheus_client is imported only when it is needed: the extra ``metrics``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from celery import Celery

from celery_reliable import signals as our_signals
from celery_reliable.app import reliable_of
from celery_reliable.compat.app import real_app
from celery_reliable.compat.notes import note, noted
from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.gauges import FLEET, UP, encodable

__all__ = ["FleetCollector", "install", "registry_of"]

_RECOVERY_BUCKETS = (0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 900)

#: Under which name an app has what counts for it.
_NOTED = "metrics"


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise ConfigurationError(
            "Metrics need the package prometheus_client, which is not installed: "
            'pip install "celery-reliable[metrics]".'
        ) from None
    return prometheus_client


def install(app: Celery, registry: Any = None) -> None:
    """Count what this process, and those that it forks, lose, recover and bury of *app*.

    To be called where the app is made.  Repeating it changes nothing.  With a prefork pool, or more
    processes than one, let ``PROMETHEUS_MULTIPROC_DIR`` name an empty directory before anything is
    imported; `registry_of` then has the sum of all.  Raises ConfigurationError without
    prometheus_client.
    """
    client, app = _client(), real_app(app)
    if noted(app, _NOTED) is None:
        counts = _Counts(app, client, registry if registry is not None else client.REGISTRY)
        note(app, _NOTED, counts)
        counts.connect()


def registry_of(app: Celery, **limits: float) -> Any:
    """Return a registry with the state of the fleet, asked when it is scraped, and with what all
    processes have counted that share ``PROMETHEUS_MULTIPROC_DIR``, if that is set.

    *limits*: from when on something is wrong, as the parameters of `Desk.status`.  Raises
    ConfigurationError without prometheus_client.
    """
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(FleetCollector(app, **limits))
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from prometheus_client.multiprocess import MultiProcessCollector

        MultiProcessCollector(registry)
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
            status = desk.status(**self._limits)
        yield from UP.families(status)
        if status is not None:
            for one in FLEET:
                yield from one.families(status)


#: What is counted by a signal of ours: how it is called, what it says, its labels, and when.
_COUNTED: tuple[tuple[str, str, tuple[str, ...], Any], ...] = (
    ("lost", "Attempts lost.", ("task", "cause"), our_signals.task_lost),
    ("recovered", "Attempts that follow a loss.", ("task",), our_signals.task_recovered),
    ("buried", "Tasks dead-lettered.", ("task", "reason"), our_signals.task_buried),
    ("fenced", "Attempts that came too late to end.", ("task",), our_signals.task_fenced),
    ("skipped", "Tasks skipped over their object.", ("task",), our_signals.task_skipped),
    ("replayed", "Dead letters replayed.", ("task",), our_signals.dead_letter_replayed),
    (
        "workers_declared_dead",
        "Workers declared dead.",
        ("cause",),
        our_signals.worker_declared_dead,
    ),
)


class _Counts:
    """What one process counts, by receivers of signals.  What a receiver raises is logged by who
    sends, and nothing else becomes of it.
    """

    def __init__(self, app: Celery, client: Any, registry: Any) -> None:
        self._app = app

        def counter(name: str, text: str, labels: tuple[str, ...]) -> Any:
            return client.Counter(f"reliable_{name}", text, labels, registry=registry)

        recovered = "From a loss, as it was noticed, to the next start."
        self.metrics = {
            **{name: counter(name, text, labels) for name, text, labels, _ in _COUNTED},
            "recovery": client.Histogram(
                "reliable_recovery_seconds",
                recovered,
                ("task",),
                buckets=_RECOVERY_BUCKETS,
                registry=registry,
            ),
        }

    def connect(self) -> None:
        """Begin to count."""
        our_signals.task_recovered.connect(self._recovered, weak=False)
        for name, _, labels, signal in _COUNTED:
            signal.connect(self._counting(name, labels), weak=False)

    def _counting(self, name: str, labels: tuple[str, ...]) -> Callable[..., None]:
        """Return a receiver that counts."""

        def receive(sender: Any = "", count: int = 1, **told: Any) -> None:
            told["task"] = getattr(sender, "name", sender)
            self.metrics[name].labels(*(encodable(told.get(one, "")) for one in labels)).inc(count)

        return receive

    def _recovered(self, sender: str = "", task_id: str = "", **_: Any) -> None:
        seconds = self._since_loss(task_id)
        if seconds is not None:
            self.metrics["recovery"].labels(encodable(sender)).observe(seconds)

    def _since_loss(self, task_id: str) -> float | None:
        """Return how long ago a task was lost last, by the server's clock.  Recoveries are rare
        enough to ask.
        """
        with suppress(ReliableError, ValueError):
            look, now_ms = reliable_of(self._app).ledger.look(task_id)
            history = look.history if look is not None else ()
            for one in reversed(history):
                if one.what in ("lost", "spared"):
                    return max(0, now_ms - one.at_ms) / 1000
        return None
