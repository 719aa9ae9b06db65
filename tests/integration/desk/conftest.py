"""The desk of a test's project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_reliable.operations import Desk
from tests.integration.commands import Ran, Run, run_celery
from tests.integration.conftest import APP, Project


@pytest.fixture
def desk(project: Project) -> Iterator[Desk]:
    """The desk as an operator opens it: by connections of its own."""
    with Desk(project.app) as found:
        yield found


@pytest.fixture
def run(project: Project, tmp_path: Path) -> Run:
    """Run `celery -A … reliable …` with the project's settings."""

    def run(*arguments: str, project: Project = project, **environ: str) -> Ran:
        return run_celery(
            "reliable",
            *arguments,
            app=APP,
            environ=project.environ("ready:none", environ),
            folder=tmp_path,
        )

    return run
