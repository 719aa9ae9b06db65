from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("reliable/", include("celery_reliable.contrib.django.urls"))]
