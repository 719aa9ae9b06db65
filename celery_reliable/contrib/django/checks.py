"""Django's system checks: what the doctor finds in the project, with the codes of the findings.

`check_project` is part of every ``manage.py check`` and connects to nothing.  `check_servers` asks
the servers: ``manage.py check --deploy``, or with ``--tag celery_reliable_server`` besides.

Django stops every command for an error of a check that is not about the deployment, also commands
that publish nothing: ``migrate``, ``collectstatic``.  So only `check_servers` reports errors as
errors.  Workers, publishers and the API refuse by themselves what cannot work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info
from django.core.checks import Warning as WarningMessage

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.project import project_app
from celery_reliable.doctor import examine, setup_of
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.findings import (
    API_SETTINGS_WRONG,
    ROWS_UNSCHEDULED,
    SETTINGS_WRONG,
    Finding,
    TaskSetup,
    look,
)
from celery_reliable.settings import ReliableConfig

__all__ = ["SERVER_TAG", "check_project", "check_servers"]

SERVER_TAG = "celery_reliable_server"


def check_project(**_: Any) -> list[CheckMessage]:
    """Check ``CELERY_RELIABLE`` as a whole, the project's Celery app, and ``CELERY_RELIABLE_API``;
    asks no server.
    """
    return [_message(one, is_blocking=False) for one in (*_about_settings(), *_about_api())]


def check_servers(**_: Any) -> list[CheckMessage]:
    """Check the tasks, the servers and the living workers, and report the errors of the other
    check as errors.
    """
    known = [*_about_settings(), *_about_api()]
    found = [one for one in known if one.severity == "error"]
    app = project_app()
    if app is not None and not any(one.code == SETTINGS_WRONG.code for one in found):
        # `check_project` finds rows by their models, which are there without tasks.
        codes = {ROWS_UNSCHEDULED.code, *(one.code for one in found)}
        found += [
            one for one in examine(app).findings if one not in known and one.code not in codes
        ]
    return [_message(one, is_blocking=True) for one in found]


def _about_settings() -> list[Finding]:
    app = project_app()
    flat = [name for name in ReliableConfig.names() if hasattr(settings, f"CELERY_RELIABLE_{name}")]
    given = getattr(settings, "CELERY_RELIABLE", None)
    try:
        # The app may read Django's settings under another namespace, and does not see them then.
        is_read = app is not None and not flat
        reliable_of(app).config if is_read else ReliableConfig.from_mapping(given, flat=flat)
    except ConfigurationError as exc:
        return [SETTINGS_WRONG.found(problem=problem) for problem in exc.problems]
    if app is None:
        return []
    # Imported when models can be.
    from celery_reliable.contrib.django.rows.reconciling import row_models

    # By their models: Celery has Django's checks run in the middle of importing tasks, and nothing
    # is imported here.
    rows = [TaskSetup(name=one._meta.label, has_row=True) for one in row_models()]
    setup = replace(setup_of(reliable_of(app), {}), tasks=rows)
    return [*examine(app, tasks=False, servers=False).findings, *look([ROWS_UNSCHEDULED], setup)]


def _about_api() -> list[Finding]:
    if hasattr(settings, "CELERY_RELIABLE_API"):
        try:
            from celery_reliable.contrib.django.api import api_config

            api_config()
        except (ImportError, ConfigurationError) as exc:
            return [API_SETTINGS_WRONG.found(problem=str(exc))]
    return []


def _message(finding: Finding, *, is_blocking: bool) -> CheckMessage:
    kind = {"error": Error if is_blocking else WarningMessage, "info": Info}
    hint = f"{finding.hint} If ignored: {finding.ignored}"
    found = kind.get(finding.severity, WarningMessage)
    return found(finding.message, hint=hint, id=f"celery_reliable.{finding.code}")
