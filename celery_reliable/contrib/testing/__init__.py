"""What the pytest plugin is made of; any other runner of tests may use it, too."""

from __future__ import annotations

from celery_reliable.contrib.testing.databases import (
    NoRedis,
    redis_database,
    redis_program,
)
from celery_reliable.contrib.testing.private_ledger import PrivateLedger

__all__ = ["NoRedis", "PrivateLedger", "redis_database", "redis_program"]
