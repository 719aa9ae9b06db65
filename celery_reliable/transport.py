"""The import path of the workers' transports that stands in settings (``broker_transport``)."""

from __future__ import annotations

from celery_reliable.broker import SentinelTransport, Transport

__all__ = ["SentinelTransport", "Transport"]
