"""``CELERY_RELIABLE_API`` in Django's settings: the project's own classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from celery_reliable.contrib.django.api.authentication import Authentication, SessionAuthentication
from celery_reliable.contrib.django.permissions import may
from celery_reliable.exceptions import ConfigurationError

__all__ = ["ApiConfig", "api_config"]

_NAMES = ("AUTHENTICATION", "PERMISSION")


@dataclass(frozen=True)
class ApiConfig:
    """Who is asked, in turn, who sends a request, and who is asked what he may do."""

    authentication: tuple[type[Authentication], ...] = (SessionAuthentication,)
    permission: Callable[[Any, Any], bool] = may


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
    found = ApiConfig()
    if "AUTHENTICATION" in given:
        paths = given["AUTHENTICATION"]
        if isinstance(paths, str) or not paths:
            raise ConfigurationError(
                "AUTHENTICATION in CELERY_RELIABLE_API has to be a list of dotted paths, with one "
                "at least."
            )
        classes = tuple(_loaded("AUTHENTICATION", path) for path in paths)
        for one in classes:
            if not (isinstance(one, type) and issubclass(one, Authentication)):
                raise ConfigurationError(
                    f"AUTHENTICATION in CELERY_RELIABLE_API names {one!r}, which is no subclass of "
                    "celery_reliable.contrib.django.api.Authentication."
                )
        found = ApiConfig(classes, found.permission)
    if "PERMISSION" in given:
        permission = _loaded("PERMISSION", given["PERMISSION"])
        if not callable(permission):
            raise ConfigurationError(
                f"PERMISSION in CELERY_RELIABLE_API names {permission!r}, which is no function of "
                "a user and a right."
            )
        found = ApiConfig(found.authentication, permission)
    return found


def _loaded(name: str, path: object) -> Any:
    try:
        return import_string(str(path))
    except ImportError as exc:
        raise ConfigurationError(
            f"{name} in CELERY_RELIABLE_API names {path!r}, which cannot be imported: {exc}."
        ) from exc
