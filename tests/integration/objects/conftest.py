"""Processes that call tasks of one object."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.integration.conftest import Project
from tests.support.processes import REPOSITORY

Caller = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start_caller() -> Iterator[Caller]:
    """Start a process that calls a task: `start_caller(project, name, object, threads, calls)`."""
    started = []

    def start(project: Project, *arguments: object) -> subprocess.Popen[bytes]:
        caller = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.calling", *map(str, arguments)],
            cwd=REPOSITORY,
            env=project.environ("", {}),
        )
        started.append(caller)
        return caller

    yield start
    for caller in started:
        caller.kill()
        caller.wait()
