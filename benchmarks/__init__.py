"""What the package costs, beside stock Celery."""

from __future__ import annotations
