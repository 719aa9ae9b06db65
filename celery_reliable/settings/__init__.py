"""The settings, and the values that they may have."""

from __future__ import annotations

from celery_reliable.settings.config import ReliableConfig
from celery_reliable.settings.ranges import MAX_SECONDS
from celery_reliable.settings.rights import acl_rule
from celery_reliable.settings.urls import REDIS_SCHEMES, sanitized_url, split_urls

__all__ = [
    "MAX_SECONDS",
    "REDIS_SCHEMES",
    "ReliableConfig",
    "acl_rule",
    "sanitized_url",
    "split_urls",
]
