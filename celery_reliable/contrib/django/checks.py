"""Django's system checks: what the doctor says of the project.

`check_settings`, `check_cache` and `check_api` are part of every ``manage.py check`` and connect to
nothing.  `check_servers` asks the servers: ``manage.py check --deploy``, or with ``--tag
celery_reliable_server`` besides.  ``docs/doctor.rst`` has all that they can say.

Django stops every command for an error of a check that is not about the deployment, also those that
publish nothing: ``migrate``, ``collectstatic``.  So only `check_servers` tells errors as errors.
Workers, publishers and the API refuse by themselves what cannot work.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info
from django.core.checks import Warning as WarningMessage

from celery_reliable.app import Reliable, reliable_of
from celery_reliable.contrib.django.api.configuration import api_config
from celery_reliable.contrib.django.caches import connector_of
from celery_reliable.contrib.django.project import project_app
from celery_reliable.doctor import check_rows, entry_of, examine
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.model import Finding
from celery_reliable.settings import AppFacts, ReliableConfig, check_app

__all__ = ["SERVER_TAG", "check_api", "check_cache", "check_servers", "check_settings"]

SERVER_TAG = "celery_reliable_server"

_SETTINGS_WRONG = "celery_reliable.settings_wrong"


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check ``CELERY_RELIABLE`` as a whole, and the project's Celery app; asks no server."""
    return [_message(one, is_blocking=False) for one in _about_settings()]


def check_cache(**_: Any) -> list[CheckMessage]:
    """Check that ``CACHE``, when it is given, leads to a Redis."""
    return [_message(one, is_blocking=False) for one in _about_cache()]


def check_api(**_: Any) -> list[CheckMessage]:
    """Check what ``CELERY_RELIABLE_API`` names, and that the API's package is there."""
    return [_message(one, is_blocking=False) for one in _about_api()]


def check_servers(**_: Any) -> list[CheckMessage]:
    """Check what only tasks, servers and living workers can tell; and tell the errors of the other
    checks as errors.
    """
    known = [*_about_settings(), *_about_cache(), *_about_api()]
    found = [one for one in known if one.level == "error"]
    app = project_app()
    if app is not None and not any(one.id == _SETTINGS_WRONG for one in found):
        # `check_settings` tells that by the models, which are there without tasks.
        told = {"celery_reliable.rows_unscheduled", *(one.id for one in found)}
        found += [one for one in examine(app).findings if one not in known and one.id not in told]
    return [_message(one, is_blocking=True) for one in found]


def _about_settings() -> list[Finding]:
    app = project_app()
    try:
        config = _config()
    except ConfigurationError as exc:
        return [_finding("settings_wrong", "error", problem) for problem in exc.problems]
    if app is None:
        # A project without an app of its own may publish by other means; its broker is not ours
        # to judge.
        facts = AppFacts(
            broker_transport="redis",
            redis_url_given=config.redis_url is not None,
            cache=config.cache,
        )
        found = check_app(facts)
    else:
        found = [*_of_settings(app), *_of_rows(app)]
    return [*found, *_look_alikes()]


def _of_settings(app: Any) -> list[Finding]:
    # Celery has Django's checks run in the middle of importing tasks: nothing is imported here.
    return list(examine(app, tasks=False, servers=False).findings)


def _of_rows(app: Any) -> list[Finding]:
    # By their models, as the tasks are not there yet; and imported when models can be.
    from celery_reliable.contrib.django.rows.reconciling import row_models

    models = [one._meta.label for one in row_models()]
    scheduler = str(app.conf.beat_scheduler)
    return list(check_rows(app.conf.beat_schedule or {}, models, scheduler))


def _look_alikes() -> list[Finding]:
    meant = getattr(settings, "RELIABLE", None)
    if not isinstance(meant, dict) or not meant.keys() & set(ReliableConfig.names()):
        return []
    return [
        Finding(
            "celery_reliable.settings_unread",
            "warning",
            "The setting RELIABLE looks like celery_reliable's, and nothing reads it.",
            "Name it CELERY_RELIABLE.",
        )
    ]


def _about_cache() -> list[Finding]:
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
        return [_finding("cache_unusable", "error", str(exc))]
    return []


def _about_api() -> list[Finding]:
    try:
        api_config()
    except ConfigurationError as exc:
        return [_finding("api_settings_wrong", "error", str(exc))]
    is_used = hasattr(settings, "CELERY_RELIABLE_API")
    if is_used and importlib.util.find_spec("msgspec") is None:
        missing = "CELERY_RELIABLE_API is set, and msgspec, which the API needs, is not installed."
        hint = 'pip install "celery-reliable[api]"'
        return [_finding("extra_missing", "warning", missing, hint)]
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


def _finding(name: str, level: Any, message: str, hint: str = "Change that setting.") -> Finding:
    return Finding(f"celery_reliable.{name}", level, message, hint)


def _message(finding: Finding, *, is_blocking: bool) -> CheckMessage:
    kind = {"error": Error, "warning": WarningMessage, "info": Info}[finding.level]
    if kind is Error and not is_blocking:
        kind = WarningMessage
    entry = entry_of(finding)
    return kind(finding.message, hint=f"{finding.hint} If ignored: {entry.ignored}", id=entry.id)
