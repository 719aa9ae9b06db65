"""A sweeper in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_reliable.sweeper import Sweeper
from tests.integration.conftest import Project
from tests.integration.project.factory import Settings


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    return Settings(
        project_settings.broker_url,
        project_settings.effects_url,
        reliable={"SWEEP_BATCH": 120, "DEAD_LETTER_MAX": 100},
    )


@pytest.fixture
def sweeper(project: Project) -> Iterator[Sweeper]:
    found = Sweeper(project.app)
    yield found
    found.close()
