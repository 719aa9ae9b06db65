"""The integration tests' project and processes, for what the pages say of commands."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from celery import _state

from tests.integration.conftest import processes, project, project_settings, start_worker

__all__ = ["processes", "project", "project_settings", "start_worker", "tasks_of_its_own"]


@pytest.fixture(autouse=True)
def tasks_of_its_own() -> Iterator[None]:
    """What a page's code declares is a task of no app that a later test of this process makes."""
    with patch.object(_state, "_on_app_finalizers", set(_state._on_app_finalizers)):
        yield
