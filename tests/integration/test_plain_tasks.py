"""Plain tasks that a worker fetched and did not begin: nobody claims them, and still each runs
once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.support.waiting import wait_for

#: They are about what waits in a worker.
pytestmark = [pytest.mark.full, pytest.mark.keeps_fetched]

RELIABLE = {"LEASE_SECONDS": 4, "SWEEP_SECONDS": 1}
#: What acknowledges late may run, as far as others can see, and keeps to this.
CELERY = {"broker_transport_options": {"visibility_timeout": 2}}


@pytest.mark.parametrize(("name", "argument"), [("plain_work", 0.01), ("plain_late", "open")])
def test_what_was_given_to_others_while_its_worker_was_frozen(
    project: Project, name: str, argument: Any
) -> None:
    brief = project.with_settings(reliable=RELIABLE, celery=CELERY)
    effects, client = brief.effects, brief.redis.client()
    effects.open_gate("open")
    one = brief.start_worker("one", concurrency=1)
    effects.run_of(brief.send("plain_gate", "busy").id)
    ids = [brief.send(name, argument).id for _ in range(2)]
    wait_for(lambda: [client.hlen(key) for key in client.keys("unacked:*")] == [2], 10, "fetched")
    one.freeze()
    brief.start_worker("two", concurrency=1)
    for task_id in ids:
        wait_for(lambda i=task_id: effects.finished(i), 20, "it runs elsewhere")
    one.thaw()
    effects.open_gate("busy")

    def is_through() -> bool:
        """Whether the worker runs what is sent now: it is through with what it had fetched."""
        later = effects.run_of(brief.send("plain_work", 0.05).id)
        return later.worker.startswith("one@")

    wait_for(is_through, 30, "the worker goes on")
    runs = [run for task_id in ids for run in effects.runs(task_id)]
    assert [run.worker.split("@")[0] for run in runs] == ["two", "two"]
    wait_until_settled(brief.redis, 15)
