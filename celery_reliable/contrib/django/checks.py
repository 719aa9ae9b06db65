"""Django's system checks (`manage.py check`): what the settings are known to be wrong about.

They look at settings only and connect to nothing; a worker checks its Redis when it starts.

===========================  =====================================================================
``celery_reliable.E001``     a value, a name or a combination of settings that cannot work
``celery_reliable.E002``     the broker is no Redis, and nothing says where the ledger's Redis is
``celery_reliable.E003``     ``CACHE`` names no cache of django-redis
``celery_reliable.E004``     ``CELERY_RELIABLE_API`` names something that cannot be
``celery_reliable.W001``     the ledger shares a database with a cache that can be cleared
``celery_reliable.W002``     the broker lives in one process: nothing is promised
``celery_reliable.W003``     ``RELIABLE`` looks like our settings, and is not read
===========================  =====================================================================
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as WarningMessage

from celery_reliable.app import Reliable, reliable_of
from celery_reliable.contrib.django.api.configuration import api_config
from celery_reliable.contrib.django.caches import connector_of
from celery_reliable.contrib.django.project import project_app
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.model import Finding
from celery_reliable.settings import AppFacts, ReliableConfig, check_app

__all__ = ["check_api", "check_cache", "check_settings"]

_IDS = {
    "celery_reliable.no_redis": "celery_reliable.E002",
    "celery_reliable.cache_can_be_cleared": "celery_reliable.W001",
    "celery_reliable.unprotected": "celery_reliable.W002",
}


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check ``CELERY_RELIABLE`` as a whole, and against the project's Celery app."""
    try:
        config = _config()
    except ConfigurationError as exc:
        return [
            Error(problem, hint="Change CELERY_RELIABLE.", id="celery_reliable.E001")
            for problem in exc.problems
        ]
    app = _reliable()
    facts = AppFacts(
        # A project without an app of its own may publish by other means; its broker is not ours
        # to judge.
        broker_transport=app.broker_url.split("://", 1)[0] if app is not None else "redis",
        redis_url_given=config.redis_url is not None,
        cache=config.cache,
    )
    return [*map(_message, check_app(facts)), *_look_alikes()]


def _look_alikes() -> list[CheckMessage]:
    meant = getattr(settings, "RELIABLE", None)
    if not isinstance(meant, dict) or not meant.keys() & set(ReliableConfig.names()):
        return []
    return [
        WarningMessage(
            "The setting RELIABLE looks like celery_reliable's, and nothing reads it.",
            hint="Name it CELERY_RELIABLE.",
            id="celery_reliable.W003",
        )
    ]


def check_cache(**_: Any) -> list[CheckMessage]:
    """Check that ``CACHE``, when it is given, leads to a Redis."""
    try:
        cache = _config().cache
    except ConfigurationError:
        # `check_settings` reports that.
        return []
    if cache is None:
        return []
    try:
        connector_of(cache)
    except ConfigurationError as exc:
        return [Error(str(exc), id="celery_reliable.E003")]
    return []


def check_api(**_: Any) -> list[CheckMessage]:
    """Check what ``CELERY_RELIABLE_API`` names."""
    try:
        api_config()
    except ConfigurationError as exc:
        return [Error(str(exc), id="celery_reliable.E004")]
    return []


def _config() -> ReliableConfig:
    app = _reliable()
    flat = [name for name in ReliableConfig.names() if hasattr(settings, f"CELERY_RELIABLE_{name}")]
    # The app may read Django's settings under another namespace, and does not see them then.
    if app is not None and not flat:
        return app.config
    return ReliableConfig.from_mapping(getattr(settings, "CELERY_RELIABLE", None), flat=flat)


def _reliable() -> Reliable | None:
    """Return the package's state of the project's Celery app; None if there is no app yet."""
    app = project_app()
    return None if app is None else reliable_of(app)


def _message(finding: Finding) -> CheckMessage:
    kind = Error if finding.level == "error" else WarningMessage
    return kind(finding.message, hint=finding.hint, id=_IDS.get(finding.id, finding.id))
