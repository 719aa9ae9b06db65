"""The Django app. It tells the package where Django's settings and caches are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections

from celery_reliable import app, doctor, results
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
        app.set_config_source(_settings)
        app.set_cache_resolver(caches.connector_of)
        hearing.listen()
        results.before_retry(_drop_lost_connections)
        doctor.set_rows_source(_open_rows)
        checks.register(check_settings)
        checks.register(check_api)
        checks.register(check_cache, checks.Tags.caches)
        checks.register(check_servers, SERVER_TAG, deploy=True)


def _drop_lost_connections() -> None:
    """Let the database that holds the results be connected anew, as Celery does between tasks."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _open_rows() -> Sequence[OpenRows]:
    # Imported when somebody asks: most processes never do.
    from celery_reliable.contrib.django.rows.counting import open_rows

    return open_rows()


def _settings() -> Mapping[str, object] | None:
    found: Mapping[str, object] | None = getattr(settings, "CELERY_RELIABLE", None)
    return found
