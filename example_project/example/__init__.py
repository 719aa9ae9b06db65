"""The example Django project: readers' usual wiring, with celery_reliable added."""

from __future__ import annotations

from example.celery import app as celery_app

__all__ = ["celery_app"]
