"""Celery 5.6 runs some plain tasks again, with the package as without it.

They were fetched and not begun when the connection to the broker was cut: with gevent, or from
another broker than Redis. Celery 5.7 does not. Here nothing is fetched that cannot begin.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import WORKERS, assert_each_ran_once, wait_until_settled
from tests.support.promises import promise
from tests.support.waiting import wait_for


@promise("never-two", "plain-tasks-5-6")
@pytest.mark.parametrize("kind", ["normal", pytest.param("pubsub", marks=pytest.mark.full)])
def test_connections_are_cut_under_a_busy_worker(kind: str, project: Project) -> None:
    """The worker connects anew three times; it is not dead, and each task runs once."""
    worker, client = project.start_worker(concurrency=3), project.redis.client()
    ids = [project.begin(name, "gate").id for name in ("gate", "plain_gate")]
    for _ in range(3):
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        ids += [project.send(name, 0.01).id for name in ("work", "plain_work")]
        for task_id in ids[2:]:
            wait_for(lambda i=task_id: project.effects.finished(i), 25, "the worker goes on")
    project.effects.open_gate("gate")
    for task_id in ids[:2]:
        wait_for(lambda i=task_id: project.effects.finished(i), 25, f"{task_id} ended")
    wait_until_settled(project.redis, 25)
    assert worker.is_running
    assert_each_ran_once(project.effects, ids)
    # Cut connections are not deaths.
    assert client.zcard(WORKERS) == 1
