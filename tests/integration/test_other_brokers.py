"""A broker that is not Redis: no unacked hash, but the ledger's promises all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import Project

NO_HEARTBEAT = ("--without-heartbeat",)


@pytest.fixture
def on_files(project: Project, tmp_path: Path) -> Project:
    """The project on kombu's file system broker, with the ledger on Redis."""
    folders = {name: str(tmp_path / name) for name in ("queue", "processed", "control")}
    for folder in folders.values():
        Path(folder).mkdir()
    return project.with_settings(
        broker_url="filesystem://",
        reliable={"REDIS_URL": project.redis.url()},
        celery={
            "broker_transport_options": {
                "data_folder_in": folders["queue"],
                "data_folder_out": folders["queue"],
                "processed_folder": folders["processed"],
                "control_folder": folders["control"],
            },
            "worker_enable_remote_control": False,
        },
    )


def test_a_process_is_replaced_by_the_one_thread_that_sees_to_it(on_files: Project) -> None:
    app, slowly = "tests.integration.project.slow", {"FORK_SECONDS": "1.5"}
    on_files.start_worker("one", options=NO_HEARTBEAT, concurrency=1, app=app, environ=slowly)
    result = on_files.send("poison_times", 2)
    assert result.get(timeout=30) == "run 3"
    assert [run.attempt for run in on_files.effects.runs(result.id)] == [1, 2, 3]
