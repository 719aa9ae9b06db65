"""The integration tests' project and processes, for whatever server there is."""

from __future__ import annotations

from tests.integration.conftest import (  # noqa: F401
    processes,
    project,
    project_settings,
    start_worker,
    stock_project,
)
