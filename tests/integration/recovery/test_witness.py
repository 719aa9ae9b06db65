"""The witness: it knows where it cannot work, says so, and leaves a death to the lease there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_celery
from tests.integration.conftest import APP, Project, Start
from tests.support.waiting import wait_for

LEASE_SECONDS = 10


@pytest.fixture
def listed(project: Project, tmp_path: Path) -> Callable[..., Any]:
    """What `celery reliable workers` prints."""

    def listed(*options: str) -> Any:
        environ = project.environ("nobody", {})
        return run_celery(
            "reliable", "workers", *options, app=APP, environ=environ, folder=tmp_path
        )

    return listed


def restricted(project: Project) -> Project:
    """The project as a user of Redis who may not ask who is connected."""
    rules = ("on", ">secret", "~*", "&*", "+@all", "-client")
    project.redis.client().execute_command("ACL", "SETUSER", "narrow", *rules)
    url = project.redis.url().replace("redis://", "redis://narrow:secret@")
    return project.with_settings(broker_url=url)


def test_who_may_not_ask_who_is_connected_has_none(
    project: Project, start_worker: Start, listed: Callable[..., Any]
) -> None:
    one = start_worker("one", project=restricted(project))
    result = project.send("gate", "gate")
    project.effects.run_of(result.id)
    start_worker("two")

    rows = {row["worker"].split("@")[0]: row for row in listed("--json").json["items"]}
    assert {name: row["witness"] for name, row in rows.items()} == {"one": False, "two": True}
    assert "ACL" in rows["one"]["no_witness"]
    assert rows["two"]["no_witness"] == ""
    assert rows["one"]["no_witness"] in " ".join(listed().out.split())

    one.kill_group()
    killed_at = project.effects.now()
    wait_for(lambda: len(project.effects.runs(result.id)) == 2, 20, "the second run")
    took = project.effects.runs(result.id)[1].started_at - killed_at
    # It had been renewed within the last quarter.
    assert 0.75 * LEASE_SECONDS - 0.5 <= took <= LEASE_SECONDS + 6
    project.effects.open_gate("gate")
    assert result.get(timeout=10) == "gate"
