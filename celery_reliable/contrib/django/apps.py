"""The Django app. It tells the package where Django's settings and caches are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections

from celery_reliable import app
from celery_reliable.contrib.django import caches
from celery_reliable.contrib.django.checks import (
    SERVER_TAG,
    check_api,
    check_cache,
    check_servers,
    check_settings,
)
from celery_reliable.contrib.django.project import remember_app
from celery_reliable.contrib.django.rows import hearing
from celery_reliable.findings import OpenRows
from celery_reliable.ledger import Connector

__all__ = ["CeleryReliableConfig"]


class CeleryReliableConfig(AppConfig):
    """Installed as ``celery_reliable.contrib.django``; its label is ``celery_reliable``."""

    name = "celery_reliable.contrib.django"
    label = "celery_reliable"
    verbose_name = "Celery, reliable"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tell the package where its settings and caches are, and register the checks."""
        remember_app()
        app.Reliable.framework = _Django()
        hearing.listen()
        checks.register(check_settings)
        checks.register(check_api)
        checks.register(check_cache, checks.Tags.caches)
        checks.register(check_servers, SERVER_TAG, deploy=True)


class _Django(app.Framework):
    """What Django tells of the project."""

    def settings(self) -> Mapping[str, object] | None:
        found: Mapping[str, object] | None = getattr(settings, "CELERY_RELIABLE", None)
        return found

    def connector_of(self, cache: str) -> Connector:
        return caches.connector_of(cache)

    def drop_lost_connections(self) -> None:
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()

    def open_rows(self) -> Sequence[OpenRows]:
        # Imported when somebody asks: most processes never do.
        from celery_reliable.contrib.django.rows.counting import open_rows

        return open_rows()
