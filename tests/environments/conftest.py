"""The integration tests' project and processes, for whatever server there is."""

from __future__ import annotations

from tests.integration.conftest import (
    processes,
    project,
    project_settings,
    start_worker,
    stock_project,
)

__all__ = [
    "processes",
    "project",
    "project_settings",
    "start_worker",
    "stock_project",
]
