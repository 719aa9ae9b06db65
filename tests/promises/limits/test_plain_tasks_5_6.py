"""Celery 5.6 runs some plain tasks again, with the package as without it.

They were fetched and not begun when the connection to the broker was cut. Celery 5.7 does not.
"""

from __future__ import annotations

import pytest
from celery import VERSION as CELERY_VERSION

from tests.integration.conftest import Project
from tests.integration.figures import WORKERS, wait_until_settled
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for


@pytest.mark.keeps_fetched
@promise("never-two", "plain-tasks-5-6")
@pytest.mark.parametrize("kind", ["normal", pytest.param("pubsub", marks=pytest.mark.full)])
def test_connections_are_cut_under_a_busy_worker(
    kind: str, project: Project, busy: tuple[Worker, list[str]]
) -> None:
    """The worker connects anew three times; it is not dead, and reliable tasks run once."""
    worker, ids = busy
    client = project.redis.client()
    for _ in range(3):
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        later = project.send("work", 0.01)
        wait_for(lambda: client.llen("celery") == 0, 20, "the worker fetches again")
        ids.append(later.id)
    project.effects.open_gate("gate")
    for task_id in ids:
        wait_for(lambda i=task_id: project.effects.finished(i), 25, f"{task_id} ended")
    wait_until_settled(project.redis, 25)
    assert worker.is_running
    # Celery 5.6 itself runs a plain task again that was only fetched when the connection was cut.
    fetched_plain = ids.pop(3)
    assert CELERY_VERSION < (5, 7) or len(project.effects.runs(fetched_plain)) == 1
    assert [len(project.effects.runs(task_id)) for task_id in ids] == [1] * 6
    # Cut connections are not deaths.
    assert client.zcard(WORKERS) == 1
