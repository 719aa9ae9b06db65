"""The Django app. It tells the package where Django's settings are."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections

from celery_reliable import app
from celery_reliable.contrib.django.checks import SERVER_TAG, check_project, check_servers
from celery_reliable.contrib.django.project import remember_app

__all__ = ["CeleryReliableConfig"]


class CeleryReliableConfig(AppConfig):
    """Installed as ``celery_reliable.contrib.django``; its label is ``celery_reliable``."""

    name = "celery_reliable.contrib.django"
    label = "celery_reliable"
    verbose_name = "Celery, reliable"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tell the package where its settings are, and register the checks."""
        remember_app()
        app.Reliable.framework = _Django()
        checks.register(check_project)
        checks.register(check_servers, SERVER_TAG, deploy=True)


class _Django(app.Framework):
    """What Django tells of the project."""

    def settings(self) -> Any:
        return getattr(settings, "CELERY_RELIABLE", None)

    def drop_lost_connections(self) -> None:
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()
