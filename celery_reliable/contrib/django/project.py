"""The project's Celery app, in whichever thread somebody asks for it."""

from __future__ import annotations

from celery import Celery, current_app

from celery_reliable.app import real_app

__all__ = ["project_app", "remember_app"]

_remembered: list[Celery] = []


def remember_app() -> None:
    """Remember the app that is current where Django is set up: Celery has a current app for the
    thread only that made it, and another thread of a web server would find a stand-in.
    """
    _remembered[:] = filter(None, [_current()])


def project_app() -> Celery | None:
    """Return the project's app: this thread's current one, or the one that was current when Django
    was set up.  None if there is none yet.
    """
    return _current() or next(iter(_remembered), None)


def _current() -> Celery | None:
    app = real_app(current_app)
    # Celery makes a stand-in where nobody has made an app.
    return None if app.main == "default" and not app.set_as_current else app
