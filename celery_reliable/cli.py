"""Where the command was before there was `operations`: metadata of an older install names it."""

from __future__ import annotations

from celery_reliable.operations.cli import reliable

__all__ = ["reliable"]
