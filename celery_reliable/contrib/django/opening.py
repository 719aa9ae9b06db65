"""The desk of the project, opened for one request: a page of the admin, or a call of the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from celery import Celery

from celery_reliable.contrib.django.project import project_app
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.operations import Desk, broker_asked

__all__ = ["opened_desk"]

#: Short, as a thread of the web server, and a browser, wait for the ledger.
_PATIENCE_SECONDS = 2.0


@contextmanager
def opened_desk(*, sees_arguments: bool) -> Iterator[Desk]:
    """Open the desk of the project's app, with its tasks imported, for one request.

    Raises ConfigurationError where there is no app, BrokerUnavailable, and what importing the tasks
    raises.
    """
    app = project_app()
    if app is None:
        raise ConfigurationError(
            "This Django project has no Celery app. Make one when Django starts, as Celery's guide "
            "for Django says: import it in the project's __init__.py."
        )
    _import_tasks(app)
    with (
        Desk(app, patience_seconds=_PATIENCE_SECONDS, sees_arguments=sees_arguments) as desk,
        broker_asked(app),
    ):
        yield desk


@lru_cache(maxsize=8)
def _import_tasks(app: Celery) -> None:
    # Once.  A web process may not have done so, and only a task says whether it is reliable, which
    # object it is about, how many may run and how its result is stored.
    app.loader.import_default_modules()
    app.finalize()
