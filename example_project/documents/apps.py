"""The documents app."""

from __future__ import annotations

from django.apps import AppConfig


class DocumentsConfig(AppConfig):
    """Checks documents for readability and structure."""

    name = "documents"
