"""The admin."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path


def no_icon(request: HttpRequest) -> HttpResponse:
    """What every browser asks for, and misses aloud."""
    return HttpResponse(status=204)


urlpatterns = [path("admin/", admin.site.urls), path("favicon.ico", no_icon)]
