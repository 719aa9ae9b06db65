"""What the package has for each Celery app: its settings, its ledger and its locks."""

from __future__ import annotations

from celery_reliable.app.location import scheme_of, set_cache_resolver
from celery_reliable.app.reliable import (
    Reliable,
    reliable_of,
    set_config_source,
    set_usher,
)

__all__ = [
    "Reliable",
    "reliable_of",
    "scheme_of",
    "set_cache_resolver",
    "set_config_source",
    "set_usher",
]
