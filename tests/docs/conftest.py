"""The integration tests' project and processes, for what the pages say of commands."""

from __future__ import annotations

from tests.integration.conftest import processes, project, project_settings, start_worker

__all__ = ["processes", "project", "project_settings", "start_worker"]
