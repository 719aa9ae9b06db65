"""The admin, and a content security policy under which only the site's own files run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)


def with_policy(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Send the policy with each answer."""

    def answer(request: Any) -> Any:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return answer


def no_icon(request: HttpRequest) -> HttpResponse:
    """What every browser asks for, and misses aloud."""
    return HttpResponse(status=204)


urlpatterns = [path("admin/", admin.site.urls), path("favicon.ico", no_icon)]
