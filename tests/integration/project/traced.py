"""The project, in processes that write their spans to a file."""

from __future__ import annotations

import os
from pathlib import Path

from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from celery_reliable.contrib.opentelemetry import instrument
from tests.integration.project.app import app

__all__ = ["app"]

# Open as long as the process lives.
spans = Path(os.environ["SPANS"]).open("a", buffering=1)  # noqa: SIM115
provider = TracerProvider()
# Each span is one line, written at once.
provider.add_span_processor(
    SimpleSpanProcessor(
        ConsoleSpanExporter(
            out=spans,
            formatter=lambda span: span.to_json(indent=None) + "\n",
        )
    )
)
# In whichever order.
instrument(app, provider)
CeleryInstrumentor().instrument(tracer_provider=provider)
# Repeating it changes nothing.
instrument(app, provider)
