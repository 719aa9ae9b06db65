"""The settings, and the values that they may have."""

from __future__ import annotations

from celery_reliable.settings.config import ReliableConfig
from celery_reliable.settings.values import (
    MAX_SECONDS,
    REDIS_SCHEMES,
    Rule,
    acl_rule,
    did_you_mean,
    misfits,
    nearest,
    one_of,
    or_none,
    sanitized_url,
    seconds,
    split_urls,
    that,
    whole,
)

__all__ = [
    "MAX_SECONDS",
    "REDIS_SCHEMES",
    "ReliableConfig",
    "Rule",
    "acl_rule",
    "did_you_mean",
    "misfits",
    "nearest",
    "one_of",
    "or_none",
    "sanitized_url",
    "seconds",
    "split_urls",
    "that",
    "whole",
]
