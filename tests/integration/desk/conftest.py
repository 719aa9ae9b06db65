"""The desk of a test's project."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_reliable.operations import Desk
from tests.integration.conftest import Project


@pytest.fixture
def desk(project: Project) -> Iterator[Desk]:
    """The desk as an operator opens it: by connections of its own."""
    with Desk(project.app) as found:
        yield found
