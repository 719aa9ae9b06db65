"""Metrics for Prometheus: what a namespace looks like, and what each process counts.

The first is asked of the ledger when somebody scrapes (`FleetCollector`).  The second is counted by
whoever publishes and runs tasks, from the signals of Celery and of the package (`install`): where
that is not called, nothing is counted and nothing is paid.

The package prometheus_client is imported only when it is needed: the extra ``metrics``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.signals import before_task_publish, task_postrun, task_prerun
from celery.utils.time import maybe_iso8601, maybe_make_aware

from celery_reliable import signals as our_signals
from celery_reliable.app import Reliable, reliable_of
from celery_reliable.compat.app import real_app
from celery_reliable.compat.notes import note, noted
from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.findings import Limits
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.gauges import FLEET, ROWS, ROWS_UP, UP, encodable
from celery_reliable.options import is_reliable

__all__ = ["FleetCollector", "RowsCollector", "install", "registry_of"]

#: The header in which a publisher that counts says when it sent a task: its own clock, in seconds.
_SENT_HEADER = "reliable_sent_at"
_WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600)
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
    """Count what this process, and those that it forks, publish, run, lose and bury of *app*.

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


def registry_of(app: Celery, *, limits: Limits | None = None, rows: bool = False) -> Any:
    """Return a registry with the state of the fleet, asked when it is scraped, and with what all
    processes have counted that share ``PROMETHEUS_MULTIPROC_DIR``, if that is set.

    With *rows* each scrape asks the databases of a Django project besides, for rows whose task is
    open: a query for each model, over an index and at most 10 000 rows.  Raises ConfigurationError
    without prometheus_client.
    """
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(FleetCollector(app, limits=limits))
    if rows:
        registry.register(RowsCollector())
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from prometheus_client.multiprocess import MultiProcessCollector

        MultiProcessCollector(registry)
    return registry


class FleetCollector:
    """Asks for the status of a namespace with each scrape, one at a time.

    Where the ledger cannot be reached ``reliable_up`` is 0, and nothing else is told.
    """

    def __init__(self, app: Celery, *, limits: Limits | None = None) -> None:
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
            status = desk.status(self._limits)
        yield from UP.families(status)
        if status is not None:
            for one in FLEET:
                yield from one.families(status)


class RowsCollector:
    """Asks the databases of a Django project for rows whose task is open, with each scrape.

    Where that fails, or there is no Django, ``reliable_rows_up`` is 0, and nothing else is told.
    """

    def describe(self) -> list[Any]:
        """Nothing is asked for when the collector is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of rows."""
        rows = None
        # A database's driver raises what it likes, and the fleet's metrics are not to miss.
        with suppress(Exception):
            rows = Reliable.framework.open_rows()
        yield from ROWS_UP.families(rows)
        for one in ROWS:
            yield from one.families(rows or ())


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

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Any:
            name = f"reliable_{name}_seconds"
            return client.Histogram(name, text, ("task",), buckets=buckets, registry=registry)

        settled = "Attempts ended, by Celery's state."
        waited = "From publication (or ETA) to the start, by the clocks of both hosts."
        recovered = "From a loss, as it was noticed, to the next start."
        self.metrics = {
            "settled": counter("settled", settled, ("task", "state")),
            **{name: counter(name, text, labels) for name, text, labels, _ in _COUNTED},
            "wait": histogram("wait", waited, _WAIT_BUCKETS),
            "recovery": histogram("recovery", recovered, _RECOVERY_BUCKETS),
        }

    def connect(self) -> None:
        """Begin to count."""
        pairs: list[tuple[Any, Callable[..., None]]] = [
            (before_task_publish, self._stamp),
            (task_prerun, self._begun),
            (task_postrun, self._ended),
            (our_signals.task_recovered, self._recovered),
        ]
        pairs += [(signal, self._counting(name, labels)) for name, _, labels, signal in _COUNTED]
        for signal, receiver in pairs:
            signal.connect(receiver, weak=False)

    def _counting(self, name: str, labels: tuple[str, ...]) -> Callable[..., None]:
        """Return a receiver that counts."""

        def receive(sender: Any = "", count: int = 1, **told: Any) -> None:
            told["task"] = getattr(sender, "name", sender)
            self.metrics[name].labels(*(encodable(told.get(one, "")) for one in labels)).inc(count)

        return receive

    def _is_ours(self, task: Any) -> bool:
        return is_reliable(task) and task.app is self._app

    def _stamp(self, sender: str = "", headers: Any = None, **_: Any) -> None:
        if headers is not None and self._is_ours(self._app.tasks.get(sender)):
            headers[_SENT_HEADER] = time.time()

    def _begun(self, task: Any = None, **_: Any) -> None:
        if not self._is_ours(task):
            return
        request = task.request
        sent_at = getattr(request, _SENT_HEADER, None)
        is_again = (request.delivery_info or {}).get("redelivered")
        if isinstance(sent_at, (int, float)) and not is_again:
            begins_at = max(float(sent_at), _seconds_of(request.eta))
            self.metrics["wait"].labels(task.name).observe(max(0.0, time.time() - begins_at))

    def _ended(self, task: Any = None, state: Any = None, **_: Any) -> None:
        if self._is_ours(task):
            self.metrics["settled"].labels(task.name, str(state)).inc()

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


def _seconds_of(eta: Any) -> float:
    """Return an ETA of a message as seconds since the epoch; 0 for none."""
    with suppress(ValueError):
        if eta:
            return float(maybe_make_aware(maybe_iso8601(eta)).timestamp())
    return 0.0
