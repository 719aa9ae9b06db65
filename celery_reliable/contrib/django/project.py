"""The project's Celery app, in whichever thread somebody asks for it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from celery import Celery, current_app

from celery_reliable.compat.app import real_app
from celery_reliable.exceptions import ConfigurationError

__all__ = ["desk_app", "project_app", "remember_app"]

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


def desk_app() -> Celery:
    """Return the same for a door of the desk, with its tasks imported.

    Raises ConfigurationError where there is no app, and what importing the tasks raises.
    """
    app = project_app()
    if app is None:
        raise ConfigurationError(
            "This Django project has no Celery app. Make one when Django starts, as Celery's guide "
            "for Django says: import it in the project's __init__.py."
        )
    _import_tasks(app)
    return app


@lru_cache(maxsize=8)
def _import_tasks(app: Celery) -> None:
    # Once.  A web process may not have done so, and only a task says whether it is reliable, which
    # object it is about, how many may run and how its result is stored.
    app.loader.import_default_modules()
    app.finalize()


def _is_stand_in(app: Any) -> bool:
    """Whether it is what Celery makes where nobody has made an app."""
    return bool(app.main == "default" and not app.set_as_current)
