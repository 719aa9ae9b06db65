"""A frozen process is not a dead one.

A worker that stops without losing its connections is declared dead when its lease runs out.
"""

from __future__ import annotations

from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled, worker_of
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for


@promise("frozen-not-dead", "late-changes-nothing")
def test_a_frozen_worker_is_dead_when_its_lease_has_lapsed(
    project: Project, workers: dict[str, Worker]
) -> None:
    """Another worker runs its task; when it wakes up, its own attempt is stopped."""
    result = project.send("gate", "frozen")
    first = project.effects.run_of(result.id)
    frozen = workers[worker_of(workers, first)]
    frozen.freeze()
    frozen_at = project.effects.now()
    second = project.effects.run_of(result.id, 2)
    # LEASE_SECONDS + 3 * SWEEP_SECONDS
    assert second.started_at - frozen_at <= 16
    # The resumed attempt was taken from it: its process is stopped, and the worker goes on.
    frozen.thaw()
    wait_for(lambda: first.pid not in frozen.children(), 20, "the taken attempt's process is gone")
    project.effects.open_gate("frozen")
    assert result.get(timeout=10) == "frozen"
    assert len(project.effects.finished(result.id)) == 1
    wait_until_settled(project.redis, 10)
