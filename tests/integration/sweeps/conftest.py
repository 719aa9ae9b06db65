"""Small batches, and few dead letters that are kept."""

from __future__ import annotations

import pytest

from tests.integration.project.factory import Settings


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    return Settings(
        project_settings.broker_url,
        project_settings.effects_url,
        reliable={"SWEEP_BATCH": 120, "DEAD_LETTER_MAX": 100},
    )
