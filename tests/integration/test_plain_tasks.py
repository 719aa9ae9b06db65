"""Plain tasks that a worker fetched and did not begin: nobody claims them, and still each runs
once.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project, Start
from tests.integration.figures import wait_until_settled
from tests.integration.project.awkward import add_tasks
from tests.support.processes import Worker
from tests.support.waiting import wait_for

#: They are about what waits in a worker.
pytestmark = [pytest.mark.full, pytest.mark.keeps_fetched]

AWKWARD = "tests.integration.project.awkward"
LEASE_SECONDS = 4
RELIABLE = {"LEASE_SECONDS": LEASE_SECONDS, "SWEEP_SECONDS": 1}


@pytest.fixture
def brief(project: Project) -> Project:
    """The project with short leases, and tasks that acknowledge late."""
    derived = project.with_settings(reliable=RELIABLE)
    add_tasks(derived.app)
    return derived


@pytest.fixture
def start() -> Start:
    """Start a worker that runs one task at a time and fetches some more."""

    def start(name: str, project: Project) -> Worker:
        return project.start_worker(name, app=AWKWARD, concurrency=1)

    return start


def fetched(project: Project, name: str) -> list[str]:
    """Let the only worker run a task to a gate, and fetch two more; return their ids."""
    gate = project.send("plain_gate", "busy")
    project.effects.run_of(gate.id)
    argument: object = 0.01 if name == "plain_work" else "open"
    ids = [project.send(name, argument).id for _ in range(2)]
    client = project.redis.client()
    wait_for(
        lambda: [client.hlen(unacked) for unacked in client.keys("unacked:*")] == [2], 10, "fetched"
    )
    return ids


def wait_until_it_goes_on(project: Project, worker: str) -> None:
    """Wait until a worker runs what was sent just now: it is through with what it had fetched."""

    def runs_one() -> bool:
        result = project.send("plain_work", 0.05)
        wait_for(lambda: project.effects.finished(result.id), 20, "a task of now")
        return project.effects.runs(result.id)[0].worker.startswith(f"{worker}@")

    wait_for(runs_one, 30, f"{worker} goes on")


@pytest.mark.parametrize("name", ["plain_work", "plain_late"])
def test_what_was_given_to_others_while_its_worker_was_frozen(
    brief: Project, start: Start, name: str
) -> None:
    # What acknowledges late may run, as far as others can see, and keeps to this.
    options = {"broker_transport_options": {"visibility_timeout": 2}}
    brief = brief.with_settings(celery=options)
    add_tasks(brief.app)
    brief.effects.open_gate("open")
    one = start("one", brief)
    ids = fetched(brief, name)
    one.freeze()
    start("two", brief)
    for task_id in ids:
        wait_for(lambda i=task_id: brief.effects.finished(i), 20, "it runs elsewhere")
    one.thaw()
    brief.effects.open_gate("busy")
    wait_until_it_goes_on(brief, "one")
    runs = [run for task_id in ids for run in brief.effects.runs(task_id)]
    assert [run.worker.split("@")[0] for run in runs] == ["two", "two"]
    wait_until_settled(brief.redis, 15)
