"""The JSON API: ``path("reliable/", include("celery_reliable.contrib.django.urls"))``."""

from __future__ import annotations

from celery_reliable.exceptions import ConfigurationError

try:
    import ninja  # noqa: F401
except ImportError as exc:
    raise ConfigurationError(
        "The JSON API checks what it is asked by the package django-ninja, which is not installed: "
        'pip install "celery-reliable[api]".'
    ) from exc

from celery_reliable.contrib.django.api import urlpatterns

__all__ = ["app_name", "urlpatterns"]

app_name = "celery_reliable"
