"""Connections to a Redis, below whatever is asked over them: ledger and broker."""

from __future__ import annotations

from celery_reliable.redis_io.connection import (
    Line,
    is_of_cluster,
    is_transient,
    is_undone,
    left_out_when_full,
    losing,
    refuses_writes,
)
from celery_reliable.redis_io.scripts import Script, by_position

__all__ = [
    "Line",
    "Script",
    "by_position",
    "is_of_cluster",
    "is_transient",
    "is_undone",
    "left_out_when_full",
    "losing",
    "refuses_writes",
]
