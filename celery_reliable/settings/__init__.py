"""The settings, and what is wrong with them, with an app or with a server."""

from __future__ import annotations

from celery_reliable.settings.checks import (
    SINGLE_PROCESS_SCHEMES,
    UNPROTECTED,
    AppFacts,
    ServerFacts,
    check_app,
    check_neighbours,
    check_server,
)
from celery_reliable.settings.config import ReliableConfig
from celery_reliable.settings.durability import check_durability
from celery_reliable.settings.ranges import MAX_SECONDS
from celery_reliable.settings.rights import acl_rule, acl_words, check_rights
from celery_reliable.settings.urls import REDIS_SCHEMES, sanitized_url, split_urls

__all__ = [
    "MAX_SECONDS",
    "REDIS_SCHEMES",
    "SINGLE_PROCESS_SCHEMES",
    "UNPROTECTED",
    "AppFacts",
    "ReliableConfig",
    "ServerFacts",
    "acl_rule",
    "acl_words",
    "check_app",
    "check_durability",
    "check_neighbours",
    "check_rights",
    "check_server",
    "sanitized_url",
    "split_urls",
]
