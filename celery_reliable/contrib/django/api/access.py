"""Who may do what over the API, by the project's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string
from ninja.security import SessionAuth
from ninja.security.base import AuthBase

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.operations import Right

__all__ = ["SessionAuthentication", "api_config"]

_DEFAULTS: dict[str, Any] = {
    "AUTHENTICATION": ["celery_reliable.contrib.django.api.SessionAuthentication"],
    "PERMISSION": "celery_reliable.contrib.django.permissions.may",
}


class SessionAuthentication(SessionAuth):
    """The user who is logged in to Django; the default.  A request that changes anything needs
    Django's CSRF token, too, as a browser sends its cookie also when another site asks it to.
    """

    def __call__(self, request: HttpRequest) -> Any:
        """Return the session's user, or None.  Raises HttpError."""
        # Otherwise a request with a wrong bearer token would be told that a CSRF token is missing.
        return super().__call__(request) if self.authenticate(request, None) else None


def api_config() -> tuple[tuple[AuthBase, ...], Callable[[Any, Right], bool]]:
    """Return who is asked, in turn, who sends a request, and what is asked what he may do, as the
    settings say.  Raises ConfigurationError.
    """
    given = getattr(settings, "CELERY_RELIABLE_API", {})
    try:
        config = {**_DEFAULTS, **given}
        ways = tuple(import_string(path)() for path in config["AUTHENTICATION"])
        permission = import_string(config["PERMISSION"])
        is_known = config.keys() == _DEFAULTS.keys() and callable(permission)
        if not (is_known and ways and all(isinstance(way, AuthBase) for way in ways)):
            raise TypeError(f"it is {given!r:.500}")
    except (ImportError, TypeError) as exc:
        raise ConfigurationError(
            f"CELERY_RELIABLE_API cannot be used: {exc}. AUTHENTICATION is a list of dotted paths "
            "of classes as in ninja.security, PERMISSION that of a function of a user and a right."
        ) from exc
    return ways, permission
