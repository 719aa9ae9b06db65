"""The JSON API: what an operator sees and does, for programs, below ``v1/``.

``celery_reliable.contrib.django.urls`` has its addresses.  Who asks is said by classes of
django-ninja's (`ninja.security`), and what he may do by a function, if a project has such::

    CELERY_RELIABLE_API = {
        "AUTHENTICATION": ["shop.desk.TokenAuthentication"],
        "PERMISSION": "shop.desk.may",
    }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string
from ninja.errors import HttpError
from ninja.security import SessionAuth
from ninja.security.base import AuthBase

from celery_reliable.contrib.django.api.requests import Problem
from celery_reliable.contrib.django.permissions import may
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.operations import Right

__all__ = ["SessionAuthentication", "api_config"]

_NAMES = ("AUTHENTICATION", "PERMISSION")


class SessionAuthentication(SessionAuth):
    """The user who is logged in to Django; the default.  With what changes anything he sends
    Django's CSRF token, too: a browser sends a cookie also when another site asks it to.
    """

    def __call__(self, request: HttpRequest) -> Any:
        """Return the session's user, or None.  Raises Problem."""
        if self.authenticate(request, None) is None:
            return None
        try:
            return super().__call__(request)
        except HttpError as exc:
            raise Problem(
                403,
                "csrf_failed",
                "Who is known by a session has to send Django's CSRF token, too: the cookie, and "
                "the same in X-CSRFToken.",
            ) from exc


def api_config() -> tuple[tuple[AuthBase, ...], Callable[[Any, Right], bool]]:
    """Return who is asked, in turn, who sends a request, and what is asked what he may do, as the
    settings say.  Raises ConfigurationError.
    """
    given = getattr(settings, "CELERY_RELIABLE_API", {})
    if not isinstance(given, Mapping) or given.keys() - set(_NAMES):
        raise ConfigurationError(
            f"CELERY_RELIABLE_API has to be a dictionary with {' or '.join(_NAMES)} in it, not "
            f"{given!r:.200}."
        )
    paths = given.get("AUTHENTICATION", ())
    if isinstance(paths, str) or ("AUTHENTICATION" in given and not paths):
        raise ConfigurationError(
            "AUTHENTICATION in CELERY_RELIABLE_API has to be a list of dotted paths, with one at "
            "least."
        )
    classes = [_loaded("AUTHENTICATION", path) for path in paths] or [SessionAuthentication]
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, AuthBase)):
            raise ConfigurationError(
                f"AUTHENTICATION in CELERY_RELIABLE_API names {one!r}, which is no subclass of one "
                "in ninja.security."
            )
    permission = _loaded("PERMISSION", given["PERMISSION"]) if "PERMISSION" in given else may
    if not callable(permission):
        raise ConfigurationError(
            f"PERMISSION in CELERY_RELIABLE_API names {permission!r}, which is no function of a "
            "user and a right."
        )
    return tuple(one() for one in classes), permission


def _loaded(name: str, path: object) -> Any:
    try:
        return import_string(str(path))
    except ImportError as exc:
        raise ConfigurationError(
            f"{name} in CELERY_RELIABLE_API names {path!r}, which cannot be imported: {exc}."
        ) from exc
