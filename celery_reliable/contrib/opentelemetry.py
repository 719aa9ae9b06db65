"""Spans of what OpenTelemetry's own instrumentation of Celery cannot see: losses and burials.

    CeleryInstrumentor().instrument()
    celery_reliable.contrib.opentelemetry.instrument(app)

An attempt that is killed ends no span, and what is not ended is not exported.  So whoever notices
the loss makes a span of it, from the times that the ledger has, in the trace of the task; and the
span of the next attempt gets a link to it.  Nothing is stored for that: the id of a lost span is
made of the task and the attempt.  A task that is not lost pays nothing.

Sweepers publish what they send again without Celery's signals, so a pass has no span.  Nor has
`celery_reliable.sweep`, which beat sends every few seconds: its spans have a parent that is not
sampled.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from celery.signals import task_prerun

from celery_reliable import signals
from celery_reliable.app import reliable_of
from celery_reliable.compat.app import real_app
from celery_reliable.compat.notes import note, noted
from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.message import Envelope
from celery_reliable.recovery import SweepTask

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.sdk.trace.id_generator import IdGenerator
except ImportError:
    raise ConfigurationError(
        "Spans need the packages of OpenTelemetry, which are not installed: "
        'pip install "celery-reliable[otel]".'
    ) from None

__all__ = ["instrument"]

_NOTED = "spans"
#: The words of a history for an attempt that was lost.
_LOST = ("lost", "spared")
#: Links of attempts that have not begun here after all.
_MOST_LINKS = 100

#: What the ids of the next span are made of; empty: of nothing, they are random.
_seed: ContextVar[str] = ContextVar("celery_reliable_span_seed", default="")


def instrument(app: Celery, tracer_provider: Any = None) -> None:
    """Make spans of what this process, and those that it forks, lose and bury of *app*, and link
    the next attempts to what was lost.

    To be called where the app is made, or where `CeleryInstrumentor` is; repeating it changes
    nothing.  *tracer_provider*: one of OpenTelemetry's SDK; the global one by default.  Raises
    ConfigurationError for another.
    """
    app = real_app(app)
    provider = tracer_provider or trace.get_tracer_provider()
    if not hasattr(provider, "id_generator"):
        raise ConfigurationError(
            f"Spans need a TracerProvider of OpenTelemetry's SDK, not {type(provider).__name__}: "
            "set it (opentelemetry.trace.set_tracer_provider) before instrument() is called."
        )
    if noted(app, _NOTED) is None:
        spans = _Spans(app, provider)
        note(app, _NOTED, spans)
        spans.connect()


class _Ids(IdGenerator):
    """Ids that can be made again, for a span that somebody else is to link to."""

    def __init__(self, other: Any) -> None:
        self._other = other

    def generate_span_id(self) -> int:
        """Return the id of a span."""
        seed = _seed.get()
        return span_id_of(seed) if seed else int(self._other.generate_span_id())

    def generate_trace_id(self) -> int:
        """Return the id of a trace, for a task whose publisher had none."""
        seed = _seed.get()
        return trace_id_of(seed) if seed else int(self._other.generate_trace_id())


def span_id_of(seed: str) -> int:
    """Return the same for the same; never 0, which is none."""
    return int.from_bytes(hashlib.sha256(b"span " + seed.encode()).digest()[:8], "big") or 1


def trace_id_of(seed: str) -> int:
    """Return the same for the same; never 0, which is none."""
    return int.from_bytes(hashlib.sha256(b"trace " + seed.encode()).digest()[:16], "big") or 1


@contextmanager
def _seeded(seed: str) -> Iterator[None]:
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


@dataclass(frozen=True)
class _Told:
    """What the ledger has of a task."""

    history: tuple[dict[str, Any], ...] = ()
    #: Of its message: there its publisher's span is.
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> Any:
        """The context in which it was published."""
        carrier = {name: one for name, one in self.headers.items() if isinstance(one, str)}
        return propagate.extract(carrier)

    def lost(self, attempt: int | None = None) -> dict[str, Any] | None:
        """The loss of an attempt; without a number, the last one."""
        losses = [one for one in self.history if one.get("what") in _LOST]
        if attempt is not None:
            losses = [one for one in losses if one.get("attempt") == attempt]
        return losses[-1] if losses else None


class _Spans:
    """What one process tells, by receivers of signals."""

    def __init__(self, app: Celery, provider: Any) -> None:
        self._app = app
        # The tracer takes it from the provider as it is made; all others keep their own.
        self._ids = own = provider.id_generator
        provider.id_generator = _Ids(own)
        try:
            self._tracer = provider.get_tracer("celery_reliable")
        finally:
            provider.id_generator = own
        #: By the task's id, for attempts that begin in a moment.
        self._links: dict[str, trace.Link] = {}
        #: Attempts begin in several threads.
        self._mutex = threading.Lock()

    def connect(self) -> None:
        """Begin to tell."""
        SweepTask.surroundings = self._unsampled
        signals.task_lost.connect(self._lost, weak=False)
        signals.task_recovered.connect(self._recovered, weak=False)
        signals.task_buried.connect(self._buried, weak=False)

    @contextmanager
    def _unsampled(self, headers: MutableMapping[str, Any]) -> Iterator[None]:
        """Let whatever happens within belong to a trace that nobody wants, here and where the
        message with these headers is run.
        """
        parent = trace.SpanContext(
            self._ids.generate_trace_id(),
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.DEFAULT),
        )
        within = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        propagate.inject(headers, within)
        token = context.attach(within)
        try:
            yield
        finally:
            context.detach(token)

    def _ask(self, task_id: str) -> _Told:
        """Ask the ledger; nothing of one that does not answer.  Losses and burials are rare."""
        ledger = reliable_of(self._app).ledger
        key = ledger.keys.record(task_id)
        try:
            history, message = ledger.ask(
                "spans", lambda client: client.hmget(key, "history", "message")
            )
            headers = Envelope.from_text(message.decode()).headers if message else {}
            return _Told(tuple(json.loads(history or "[]")), headers)
        except (ReliableError, ValueError, KeyError, TypeError, AttributeError):
            return _Told()

    def _lost(
        self,
        sender: str = "",
        task_id: str = "",
        attempt: int = 0,
        cause: str = "",
        is_counted: bool = True,
        **_: Any,
    ) -> None:
        told = self._ask(task_id)
        loss = told.lost(attempt)
        if loss is None:
            return
        attributes = _attributes(sender, task_id, attempt)
        attributes["celery_reliable.cause"] = str(loss.get("cause") or cause)
        attributes["celery_reliable.is_counted"] = is_counted
        attributes["celery_reliable.worker"] = str(loss.get("owner") or "")
        with _seeded(_seed_of(task_id, loss)):
            span = self._tracer.start_span(
                f"lost/{sender}",
                context=told.context,
                kind=trace.SpanKind.CONSUMER,
                attributes=attributes,
                start_time=_ns(loss.get("claimed_ms") or loss.get("at_ms")),
            )
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"lost: {loss.get('cause') or cause}"))
        span.end(_ns(loss.get("at_ms")))

    def _recovered(self, task_id: str = "", **_: Any) -> None:
        told = self._ask(task_id)
        loss = told.lost()
        if loss is None:
            return
        seed = _seed_of(task_id, loss)
        parent = trace.get_current_span(told.context).get_span_context()
        lost = trace.SpanContext(
            parent.trace_id if parent.is_valid else trace_id_of(seed),
            span_id_of(seed),
            is_remote=True,
            trace_flags=parent.trace_flags if parent.is_valid else trace.TraceFlags(1),
        )
        link = trace.Link(lost, _attributes("", task_id, loss.get("attempt") or 0))
        with self._mutex:
            while len(self._links) >= _MOST_LINKS:
                self._links.pop(next(iter(self._links)))
            self._links[task_id] = link
            # Behind the receiver that begins the span; no other task pays for it.
            task_prerun.disconnect(self._begun)
            task_prerun.connect(self._begun, weak=False)

    def _begun(self, task_id: str = "", **_: Any) -> None:
        with self._mutex:
            link = self._links.pop(task_id, None)
            if not self._links:
                task_prerun.disconnect(self._begun)
        if link is not None:
            trace.get_current_span().add_link(link.context, link.attributes)

    def _buried(
        self,
        sender: str = "",
        task_id: str = "",
        reason: str = "",
        attempt: int = 0,
        exception: str = "",
        **_: Any,
    ) -> None:
        attributes = _attributes(sender, task_id, attempt)
        attributes["celery_reliable.reason"] = reason
        told = self._ask(task_id)
        loss = told.lost(attempt)
        if loss is not None:
            attributes["celery_reliable.cause"] = str(loss.get("cause") or "")
        span = self._tracer.start_span(
            f"buried/{sender}", context=told.context, attributes=attributes
        )
        # Not what was raised: it may quote an argument.
        span.set_status(trace.Status(trace.StatusCode.ERROR, exception.partition(":")[0]))
        span.end()


def _attributes(name: str, task_id: str, attempt: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "celery.task_name": name,
        "messaging.message.id": task_id,
        "celery_reliable.attempt": attempt,
    }
    return {key: value for key, value in found.items() if value}


def _seed_of(task_id: str, loss: dict[str, Any]) -> str:
    return f"{task_id} {loss.get('attempt')} {loss.get('at_ms')}"


def _ns(ms: Any) -> int:
    return int(ms or 0) * 1_000_000
