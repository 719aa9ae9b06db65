"""The admin and the JSON API of the desk: the example is about what happens behind them."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("reliable/", include("celery_reliable.contrib.django.urls")),
]
