"""Django's system checks: what the doctor finds in the project, with the codes of the findings.

`check_settings`, `check_cache` and `check_api` are part of every ``manage.py check`` and connect to
nothing.  `check_servers` asks the servers: ``manage.py check --deploy``, or with ``--tag
celery_reliable_server`` besides.

Django stops every command for an error of a check that is not about the deployment, also commands
that publish nothing: ``migrate``, ``collectstatic``.  So only `check_servers` reports errors as
errors.  Workers, publishers and the API refuse by themselves what cannot work.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info
from django.core.checks import Warning as WarningMessage

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.api import api_config
from celery_reliable.contrib.django.caches import connector_of
from celery_reliable.contrib.django.project import project_app
from celery_reliable.doctor import examine, setup_of
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.findings import (
    API_SETTINGS_WRONG,
    CACHE_CAN_BE_CLEARED,
    EXTRA_MISSING,
    NO_REDIS,
    ROWS_UNSCHEDULED,
    SETTINGS_UNREAD,
    SETTINGS_WRONG,
    Finding,
    TaskSetup,
    look,
)
from celery_reliable.settings import ReliableConfig

__all__ = ["SERVER_TAG", "check_api", "check_cache", "check_servers", "check_settings"]

SERVER_TAG = "celery_reliable_server"


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check ``CELERY_RELIABLE`` as a whole, and the project's Celery app; asks no server."""
    return [_message(one, is_blocking=False) for one in _about_settings()]


def check_cache(**_: Any) -> list[CheckMessage]:
    """Check that ``CACHE``, when it is given, leads to a Redis."""
    return [_message(one, is_blocking=False) for one in _about_cache()]


def check_api(**_: Any) -> list[CheckMessage]:
    """Check the names in ``CELERY_RELIABLE_API``, and that the API's package is installed."""
    return [_message(one, is_blocking=False) for one in _about_api()]


def check_servers(**_: Any) -> list[CheckMessage]:
    """Check the tasks, the servers and the living workers, and report the errors of the other
    checks as errors.
    """
    known = [*_about_settings(), *_about_cache(), *_about_api()]
    found = [one for one in known if one.severity == "error"]
    app = project_app()
    if app is not None and not any(one.code == SETTINGS_WRONG.code for one in found):
        # `check_settings` finds rows by their models, which are there without tasks.
        codes = {ROWS_UNSCHEDULED.code, *(one.code for one in found)}
        found += [
            one for one in examine(app).findings if one not in known and one.code not in codes
        ]
    return [_message(one, is_blocking=True) for one in found]


def _about_settings() -> list[Finding]:
    app = project_app()
    try:
        config = _config()
    except ConfigurationError as exc:
        return [SETTINGS_WRONG.found(problem=problem) for problem in exc.problems]
    if app is not None:
        # Celery has Django's checks run in the middle of importing tasks: nothing is imported here.
        found = [*examine(app, tasks=False, servers=False).findings, *_rows(app)]
    else:
        # A project without an app may publish by other means; its broker is not ours to judge.
        found = [] if config.cache is None else [CACHE_CAN_BE_CLEARED.found(cache=config.cache)]
    meant = getattr(settings, "RELIABLE", None)
    if isinstance(meant, dict) and meant.keys() & set(ReliableConfig.names()):
        found.append(SETTINGS_UNREAD.found())
    return found


def _rows(app: Any) -> list[Finding]:
    # By their models, as the tasks are not there yet; imported when models can be.
    from celery_reliable.contrib.django.rows.reconciling import row_models

    rows = [TaskSetup(name=one._meta.label, has_row=True) for one in row_models()]
    return look([ROWS_UNSCHEDULED], replace(setup_of(reliable_of(app), {}), tasks=rows))


def _about_cache() -> list[Finding]:
    try:
        cache = _config().cache
    except ConfigurationError:
        # `check_settings` reports that.
        return []
    try:
        if cache is not None:
            connector_of(cache)
    except ConfigurationError as exc:
        return [NO_REDIS.found(problem=str(exc))]
    return []


def _about_api() -> list[Finding]:
    try:
        api_config()
    except ConfigurationError as exc:
        return [API_SETTINGS_WRONG.found(problem=str(exc))]
    if hasattr(settings, "CELERY_RELIABLE_API") and importlib.util.find_spec("ninja") is None:
        need = "CELERY_RELIABLE_API is set, and the API needs it"
        return [EXTRA_MISSING.found(package="django-ninja", need=need, extra="api")]
    return []


def _config() -> ReliableConfig:
    app = project_app()
    flat = [name for name in ReliableConfig.names() if hasattr(settings, f"CELERY_RELIABLE_{name}")]
    # The app may read Django's settings under another namespace, and does not see them then.
    if app is not None and not flat:
        return reliable_of(app).config
    return ReliableConfig.from_mapping(getattr(settings, "CELERY_RELIABLE", None), flat=flat)


def _message(finding: Finding, *, is_blocking: bool) -> CheckMessage:
    kind = {"error": Error, "warning": WarningMessage, "info": Info}[finding.severity]
    if kind is Error and not is_blocking:
        kind = WarningMessage
    hint = f"{finding.hint} If ignored: {finding.ignored}"
    return kind(finding.message, hint=hint, id=f"celery_reliable.{finding.code}")
