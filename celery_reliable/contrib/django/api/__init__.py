"""The JSON API: what an operator sees and does, for programs, below ``v1/``.

``celery_reliable.contrib.django.urls`` has its addresses.  Who asks, and what he may do, is said by
classes of the project's own, if it has such::

    CELERY_RELIABLE_API = {
        "AUTHENTICATION": ["shop.desk.TokenAuthentication"],
        "PERMISSION": "shop.desk.may",
    }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string

from celery_reliable.contrib.django.permissions import may
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.operations import Right

__all__ = ["ApiConfig", "Authentication", "Right", "SessionAuthentication", "api_config"]

_NAMES = ("AUTHENTICATION", "PERMISSION")


class Authentication:
    """How a request says who sends it.  A project's own is a subclass; one is made for each
    request.
    """

    #: A browser sends a cookie also when another site asks it to, so whoever is known by one has to
    #: send Django's CSRF token, too, with what changes anything.  A header that only the client
    #: itself can set needs none.
    is_csrf_exempt: bool = False
    #: For the ``WWW-Authenticate`` of a request that nobody could be found for.
    challenge: str = ""

    def authenticate(self, request: HttpRequest) -> Any:
        """Return who sends it; None if this one cannot tell, and the next is asked."""
        raise NotImplementedError

    def scheme(self) -> dict[str, Any]:
        """Return the security scheme of OpenAPI that describes it."""
        raise NotImplementedError


class SessionAuthentication(Authentication):
    """The user who is logged in to Django; the default."""

    challenge = 'Session realm="celery_reliable"'

    def authenticate(self, request: HttpRequest) -> Any:
        """Return the session's user, or None."""
        user = getattr(request, "user", None)
        return user if user is not None and user.is_authenticated else None

    def scheme(self) -> dict[str, Any]:
        """Return a cookie's scheme."""
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}


@dataclass(frozen=True)
class ApiConfig:
    """Who is asked, in turn, who sends a request, and who is asked what he may do."""

    authentication: tuple[type[Authentication], ...]
    permission: Callable[[Any, Any], bool]


def api_config() -> ApiConfig:
    """Return what the settings say.  Raises ConfigurationError."""
    given = getattr(settings, "CELERY_RELIABLE_API", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError("CELERY_RELIABLE_API has to be a dictionary.")
    unknown = sorted(map(str, set(given) - set(_NAMES)))
    if unknown:
        raise ConfigurationError(
            f"CELERY_RELIABLE_API has no {unknown[0]!r}. It has {' and '.join(_NAMES)}."
        )
    paths = given.get("AUTHENTICATION", ())
    if isinstance(paths, str) or ("AUTHENTICATION" in given and not paths):
        raise ConfigurationError(
            "AUTHENTICATION in CELERY_RELIABLE_API has to be a list of dotted paths, with one at "
            "least."
        )
    classes = tuple(_loaded("AUTHENTICATION", path) for path in paths)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, Authentication)):
            raise ConfigurationError(
                f"AUTHENTICATION in CELERY_RELIABLE_API names {one!r}, which is no subclass of "
                "celery_reliable.contrib.django.api.Authentication."
            )
    permission = _loaded("PERMISSION", given["PERMISSION"]) if "PERMISSION" in given else may
    if not callable(permission):
        raise ConfigurationError(
            f"PERMISSION in CELERY_RELIABLE_API names {permission!r}, which is no function of a "
            "user and a right."
        )
    return ApiConfig(classes or (SessionAuthentication,), permission)


def _loaded(name: str, path: object) -> Any:
    try:
        return import_string(str(path))
    except ImportError as exc:
        raise ConfigurationError(
            f"{name} in CELERY_RELIABLE_API names {path!r}, which cannot be imported: {exc}."
        ) from exc
