"""What the package costs, beside stock Celery and the lock packages: ``python -m benchmarks``."""

from __future__ import annotations
