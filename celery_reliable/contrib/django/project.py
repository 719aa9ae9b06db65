"""The project's Celery app, in whichever thread somebody asks for it."""

from __future__ import annotations

from typing import Any

from celery import Celery, current_app

from celery_reliable.compat.app import real_app

__all__ = ["project_app", "remember_app"]

_remembered: list[Celery] = []


def remember_app() -> None:
    """Remember the app that is current where Django is set up: Celery has a current app for the
    thread only that made it, and another thread of a web server would find a stand-in.
    """
    app = real_app(current_app)
    _remembered[:] = [] if _is_stand_in(app) else [app]


def project_app() -> Celery | None:
    """Return the project's app: this thread's current one, or the one that was current when Django
    was set up.  None if there is none yet.
    """
    app = real_app(current_app)
    if not _is_stand_in(app):
        return app
    return _remembered[0] if _remembered else None


def _is_stand_in(app: Any) -> bool:
    """Whether it is what Celery makes where nobody has made an app."""
    return bool(app.main == "default" and not app.set_as_current)
