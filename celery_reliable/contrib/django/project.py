"""The project's Celery app, in whichever thread somebody asks for it; its desk, opened for one
request, which is a page of the admin or a call of the API; and which of Django's permissions is
needed for what there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from celery import Celery, current_app

from celery_reliable.app import real_app
from celery_reliable.exceptions import ConfigurationError

if TYPE_CHECKING:
    from celery_reliable.operations import Desk, Right

__all__ = ["NEEDED", "may", "opened_desk", "project_app", "remember_app"]

_remembered: list[Celery] = []

#: Django's permissions by the values of `Right`: any one of these is enough.  Who may change what
#: the admin shows may see it, as in Django's own pages.
NEEDED: dict[str, tuple[str, ...]] = {
    "view": ("celery_reliable.view_deadletter", "celery_reliable.change_deadletter"),
    "replay": ("celery_reliable.change_deadletter",),
    "discard": ("celery_reliable.delete_deadletter",),
    "operate": ("celery_reliable.operate",),
    "see_arguments": ("celery_reliable.see_arguments",),
}

#: Short, as a thread of the web server, and a browser, wait for the ledger.
_PATIENCE_SECONDS = 2.0


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


def may(user: Any, what: Right | str) -> bool:
    """Return whether a user of Django's may do it.  A superuser may do everything, whoever is not
    active nothing.  Raises ValueError for what is no `Right`.
    """
    from celery_reliable.operations import Right

    return any(user.has_perm(name) for name in NEEDED[Right(what).value])


@contextmanager
def opened_desk(*, sees_arguments: bool) -> Iterator[Desk]:
    """Open the desk of the project's app, with its tasks imported, for one request.

    Raises ConfigurationError where there is no app, BrokerUnavailable, and what importing the tasks
    raises.
    """
    # Imported when somebody asks: most processes of a project never do.
    from celery_reliable.operations import Desk, broker_asked

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
