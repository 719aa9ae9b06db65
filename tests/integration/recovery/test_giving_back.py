"""Giving everything back before the package goes: what fails half-way is done by the next try."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from celery_reliable.operations.uninstall import release
from tests.integration.conftest import SOON, Project
from tests.integration.project import named


@pytest.fixture
def fleet(project: Project) -> Project:
    """A project that publishes, and of which nobody is alive."""
    found = project.with_settings(reliable=SOON)
    named.add_tasks(found.app)
    return found


@pytest.fixture
def client(fleet: Project) -> redis.Redis:
    return fleet.redis.client()


def waiting(client: redis.Redis, queue: str) -> list[str]:
    """The ids of the tasks in a queue, sorted."""
    return sorted(json.loads(raw)["headers"]["id"] for raw in client.lrange(queue, 0, -1))


@pytest.mark.parametrize(("may_scan", "prefix"), [(True, "[a*]:"), (False, "")])
def test_what_a_worker_has_left_on_the_way_from_its_queue_is_given_back(
    fleet: Project, client: redis.Redis, may_scan: bool, prefix: str
) -> None:
    settings: dict[str, Any] = {"broker_transport_options": {"global_keyprefix": prefix}}
    project = fleet.with_settings(celery=settings)
    plain, ours = project.send("plain_work", 0.01), project.send("work", 0.01)
    queue = f"{prefix}celery"
    inbox = f"{prefix}celery-reliable.inbox:{queue}"
    for _ in range(2):
        assert client.lmove(queue, inbox, "RIGHT", "LEFT")
    if not may_scan:
        rights = ["on", ">secret", "~*", "&*", "+@all", "-scan"]
        client.execute_command("ACL", "SETUSER", "operator", *rights)
        url = fleet.redis.url().replace("redis://", "redis://operator:secret@")
        project = fleet.with_settings(broker_url=url, celery=settings)

    assert release(project.app).messages == 2

    assert waiting(client, queue) == sorted([plain.id, ours.id])
    assert not client.exists(inbox)
