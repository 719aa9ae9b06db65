"""The project, in processes that count for Prometheus."""

from __future__ import annotations

from celery_reliable.operations import install_metrics
from tests.integration.project.app import app

__all__ = ["app"]

install_metrics(app)
# Repeating it changes nothing.
install_metrics(app)
