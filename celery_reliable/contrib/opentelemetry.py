"""Spans of what OpenTelemetry's own instrumentation of Celery cannot see: losses and burials.

    CeleryInstrumentor().instrument()
    celery_reliable.contrib.opentelemetry.instrument(app)

An attempt that is killed ends no span, and what is not ended is not exported.  So the process that
notices the loss makes a span of it, from the times that the ledger has, in the trace of the task.
The span of the next attempt gets a link to it.  Nothing is stored for that: the id of a lost span
is made of the task and the attempt.

Sweepers publish what they send again without Celery's signals, so a pass has no span.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from celery import Celery
from celery.signals import task_prerun

from celery_reliable import signals
from celery_reliable.app import reliable_of
from celery_reliable.compat.app import real_app
from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.message import Envelope
from celery_reliable.model import HistoryEntry

try:
    from opentelemetry import propagate, trace
    from opentelemetry.sdk.trace.id_generator import IdGenerator
except ImportError:
    raise ConfigurationError(
        "Spans need the packages of OpenTelemetry, which are not installed: "
        'pip install "celery-reliable[otel]".'
    ) from None

__all__ = ["instrument"]

#: The words of a history for an attempt that was lost.
_LOST = ("lost", "spared")

#: The task that this thread is about to begin, and the loss before it.
_link: ContextVar[tuple[str, trace.Link] | None] = ContextVar("celery_reliable_link", default=None)


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
    spans, uid = _Spans(app, provider), f"celery_reliable.spans.{id(app)}"
    signals.task_lost.connect(spans.lost, weak=False, dispatch_uid=uid)
    signals.task_recovered.connect(spans.recovered, weak=False, dispatch_uid=uid)
    signals.task_buried.connect(spans.buried, weak=False, dispatch_uid=uid)


class _Ids(IdGenerator):
    """Ids that every process makes alike of a loss, for a span that another one is to link to."""

    def __init__(self, task_id: str, loss: HistoryEntry) -> None:
        seed = f"{task_id} {loss.attempt} {loss.at_ms}"
        self._digest = hashlib.sha256(seed.encode()).digest()

    def generate_span_id(self) -> int:
        """Return the id of the span."""
        # 0 is no id.
        return int.from_bytes(self._digest[16:24], "big") or 1

    def generate_trace_id(self) -> int:
        """Return the id of a trace, for a task whose publisher had none."""
        return int.from_bytes(self._digest[:16], "big") or 1


class _Spans:
    """The spans of one process, made by receivers of signals."""

    def __init__(self, app: Celery, provider: Any) -> None:
        self._app, self._provider = app, provider

    def _ask(self, task_id: str, attempt: int | None = None) -> tuple[Any, HistoryEntry | None]:
        """Return the context in which a task was published, and the loss of this attempt, or the
        last one; of a ledger that does not answer neither.  Losses and burials are rare.
        """
        headers: Mapping[str, Any] = {}
        loss = None
        with suppress(ReliableError, ValueError, KeyError, TypeError, AttributeError):
            look, _ = reliable_of(self._app).ledger.look(task_id)
            if look is not None:
                for one in look.history:
                    if one.what in _LOST and attempt in (None, one.attempt):
                        loss = one
                headers = Envelope.from_text(look.record.message).headers
        carrier = {name: one for name, one in headers.items() if isinstance(one, str)}
        return propagate.extract(carrier), loss

    def lost(
        self,
        sender: str,
        task_id: str,
        attempt: int,
        cause: str = "",
        is_counted: bool = True,
        **_: Any,
    ) -> None:
        context, loss = self._ask(task_id, attempt)
        if loss is None:
            return
        tracer = self._provider.get_tracer("celery_reliable")
        tracer.id_generator = _Ids(task_id, loss)
        about = _about(sender, task_id, attempt, cause=loss.cause or cause, worker=loss.owner)
        span = tracer.start_span(
            f"lost/{sender}",
            context=context,
            kind=trace.SpanKind.CONSUMER,
            attributes={**about, "celery_reliable.is_counted": is_counted},
            start_time=_ns(loss.claimed_ms or loss.at_ms),
        )
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"lost: {loss.cause or cause}"))
        span.end(_ns(loss.at_ms))

    def recovered(self, task_id: str, **_: Any) -> None:
        context, loss = self._ask(task_id)
        if loss is None:
            return
        ids = _Ids(task_id, loss)
        parent = trace.get_current_span(context).get_span_context()
        lost = trace.SpanContext(
            parent.trace_id or ids.generate_trace_id(),
            ids.generate_span_id(),
            is_remote=True,
            trace_flags=parent.trace_flags if parent.is_valid else trace.TraceFlags(1),
        )
        _link.set((task_id, trace.Link(lost, _about("", task_id, loss.attempt))))
        # Behind the receiver that begins the span.
        task_prerun.disconnect(self._begun)
        task_prerun.connect(self._begun, weak=False)

    def _begun(self, task_id: str = "", **_: Any) -> None:
        about, link = _link.get() or ("", None)
        if link is not None and about == task_id:
            trace.get_current_span().add_link(link.context, link.attributes)
            _link.set(None)

    def buried(
        self,
        sender: str,
        task_id: str,
        reason: str = "",
        attempt: int = 0,
        exception: str = "",
        **_: Any,
    ) -> None:
        context, loss = self._ask(task_id, attempt)
        cause = loss.cause if loss is not None else ""
        about = _about(sender, task_id, attempt, reason=reason, cause=cause)
        tracer = self._provider.get_tracer("celery_reliable")
        span = tracer.start_span(f"buried/{sender}", context=context, attributes=about)
        # Not what was raised: it may quote an argument.
        span.set_status(trace.Status(trace.StatusCode.ERROR, exception.partition(":")[0]))
        span.end()


def _about(name: str, task_id: str, attempt: int, **more: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "celery.task_name": name,
        "messaging.message.id": task_id,
        "celery_reliable.attempt": attempt,
        **{f"celery_reliable.{key}": value for key, value in more.items()},
    }
    return {key: value for key, value in found.items() if value}


def _ns(ms: int) -> int:
    return ms * 1_000_000
