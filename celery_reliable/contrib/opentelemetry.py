"""Spans of what OpenTelemetry's own instrumentation of Celery cannot see: losses and burials.

    CeleryInstrumentor().instrument()
    celery_reliable.contrib.opentelemetry.instrument(app)

An attempt that is killed ends no span, and what is not ended is not exported.  So the process that
notices the loss makes a span of it, from the times that the ledger has, in the trace of the task.
Nothing is stored for that.

Sweepers publish what they send again without Celery's signals, so a pass has no span.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from celery import Celery

from celery_reliable import signals
from celery_reliable.app import real_app, reliable_of
from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.message import Envelope
from celery_reliable.model import HistoryEntry

try:
    from opentelemetry import propagate, trace
except ImportError:
    raise ConfigurationError(
        "Spans need the packages of OpenTelemetry, which are not installed: "
        'pip install "celery-reliable[otel]".'
    ) from None

__all__ = ["instrument"]

#: Nanoseconds in a millisecond.
_NS = 1_000_000
#: The words of a history for an attempt that was lost.
_LOST = ("lost", "spared")


def instrument(app: Celery, tracer_provider: Any = None) -> None:
    """Make spans of what this process, and those that it forks, lose and bury of *app*.

    To be called where the app is made, or where `CeleryInstrumentor` is; repeating it changes
    nothing.  *tracer_provider*: the global one by default.
    """
    app = real_app(app)
    tracer = trace.get_tracer("celery_reliable", tracer_provider=tracer_provider)
    spans, uid = _Spans(app, tracer), f"celery_reliable.spans.{id(app)}"
    signals.task_lost.connect(spans.lost, weak=False, dispatch_uid=uid)
    signals.task_buried.connect(spans.buried, weak=False, dispatch_uid=uid)


class _Spans:
    """The spans of one process, made by receivers of signals."""

    def __init__(self, app: Celery, tracer: trace.Tracer) -> None:
        self._app, self._tracer = app, tracer

    def _ask(self, task_id: str, attempt: int) -> tuple[Any, HistoryEntry | None]:
        """Return the context in which a task was published, and the loss of this attempt; of a
        ledger that does not answer neither.  Losses and burials are rare.
        """
        headers: Mapping[str, Any] = {}
        loss = None
        with suppress(ReliableError, ValueError, KeyError, TypeError, AttributeError):
            look, _ = reliable_of(self._app).ledger.look(task_id)
            if look is not None:
                of_attempt = [one for one in look.history if one.attempt == attempt]
                loss = next((one for one in reversed(of_attempt) if one.what in _LOST), None)
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
        about = _about(sender, task_id, attempt, cause=loss.cause or cause, worker=loss.owner)
        span = self._tracer.start_span(
            f"lost/{sender}",
            context=context,
            kind=trace.SpanKind.CONSUMER,
            attributes={**about, "celery_reliable.is_counted": is_counted},
            start_time=(loss.claimed_ms or loss.at_ms) * _NS,
        )
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"lost: {loss.cause or cause}"))
        span.end(loss.at_ms * _NS)

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
        span = self._tracer.start_span(f"buried/{sender}", context=context, attributes=about)
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
