"""What the package has for each Celery app: its settings and its ledger."""

from __future__ import annotations

from celery_reliable.app.location import scheme_of
from celery_reliable.app.reliable import Framework, Reliable, real_app, reliable_of

__all__ = ["Framework", "Reliable", "real_app", "reliable_of", "scheme_of"]
