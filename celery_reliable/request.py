"""The import path of the request class that tasks name, and that a project's own derives from."""

from __future__ import annotations

from celery_reliable.worker import ReliableRequest

__all__ = ["ReliableRequest"]
