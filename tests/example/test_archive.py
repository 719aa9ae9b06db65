"""The example's archive allows two connections: no third task begins, and none is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

from tests.example.conftest import EXAMPLE
from tests.support.django_project import DjangoProject
from tests.support.processes import REPOSITORY
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

NAMES = [f"document {number}" for number in range(8)]
CHECKED = f"""
from django.core.management import call_command
from django.utils import timezone
from documents.models import Document
call_command("migrate", verbosity=0)
for name in {NAMES!r}:
    Document.objects.create(name=name, path=name, readability=len(name), checked_at=timezone.now())
Document.objects.create(name="unchecked", path="unchecked")
call_command("archive_documents")
"""


@pytest.fixture
def example(tmp_path: Path, redis_server: RedisServer) -> Iterator[DjangoProject]:
    """The example project, with its files in a folder of the test's."""
    if django.VERSION < (5, 1):
        pytest.skip("the example tells SQLite how to begin transactions, which needs Django 5.1")
    project = DjangoProject(
        tmp_path,
        {},
        environ={
            "DJANGO_SETTINGS_MODULE": "example.settings",
            "PYTHONPATH": os.pathsep.join([str(EXAMPLE), str(REPOSITORY)]),
            "BROKER_URL": redis_server.url(),
            "EXAMPLE_DATABASE": str(tmp_path / "db.sqlite3"),
            "EXAMPLE_ARCHIVE": str(tmp_path / "archive"),
        },
    )
    yield project
    project.close()


def test_no_more_connect_to_the_archive_than_it_allows(
    example: DjangoProject, tmp_path: Path, redis_server: RedisServer
) -> None:
    assert "8 documents will be archived" in example.run(CHECKED)
    archive = tmp_path / "archive"

    # More processes than connections: each task that was refused would have failed.
    example.worker("one", 4, app="example", is_ready=archive.exists).wait_until_ready()

    def stored() -> list[str]:
        return sorted(path.stem for path in archive.glob("*.json"))

    wait_for(lambda: stored() == NAMES, 30, "all are archived")
    assert json.loads((archive / f"{NAMES[0]}.json").read_text())["readability"] == len(NAMES[0])
    client = redis_server.client()
    wait_for(lambda: not client.keys("{*}:task:*"), 20, "all have ended, none as a dead letter")
