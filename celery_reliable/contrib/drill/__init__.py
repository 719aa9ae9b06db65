"""The processes of a drill (`celery reliable drill`): its workers, and who publishes its tasks."""

from __future__ import annotations

__all__: list[str] = []
