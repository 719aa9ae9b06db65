"""Back in its queue is not yet running.

What was lost is next in its queue the first time. When it is lost again, it goes behind the others.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import ids_in, wait_until_settled, worker_of
from tests.support.promises import promise
from tests.support.waiting import wait_for


@pytest.mark.full
@promise("queued-not-running")
def test_recovery_needs_one_free_process_of_the_survivor(project: Project) -> None:
    """Of two lost tasks one runs at once; the other waits for a process."""
    workers = {name: project.start_worker(name) for name in ("one", "two")}
    gates = [project.send("gate", f"busy-{n}") for n in range(3)]
    runs = [project.effects.run_of(r.id) for r in gates]
    by_worker = [worker_of(workers, run) for run in runs]
    victim = next(name for name in workers if by_worker.count(name) == 2)
    lost = [r.id for r, name in zip(gates, by_worker, strict=True) if name == victim]
    workers[victim].kill_group()
    killed_at = project.effects.now()
    wait_for(
        lambda: sorted(len(project.effects.runs(i)) for i in lost) == [1, 2],
        20,
        "one of them on the free process",
    )
    again = max(project.effects.starts(i)[-1] for i in lost)
    assert again - killed_at <= 8
    for n in range(3):
        project.effects.open_gate(f"busy-{n}")
    for result in gates:
        result.get(timeout=10)
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)


@promise("queued-not-running")
def test_what_is_lost_is_next_in_its_queue_and_behind_what_waits_when_it_is_lost_again(
    project: Project,
) -> None:
    """So a task that kills its workers does not hold up the others."""
    project.start_worker("sweeps", options=("-Q", "another"))
    client = project.redis.client()
    lost = project.send("gate", "gate").id
    waiting = [project.send("gate", "gate").id for _ in range(3)]
    for number, expected in ((1, [lost, *waiting]), (2, [*waiting, lost])):
        worker = project.start_worker("dies", concurrency=1)
        wait_for(lambda n=number: len(project.effects.runs(lost)) == n, 15, "it runs")
        worker.kill_group()
        wait_for(lambda: client.llen("celery") == 4, 20, "it is in its queue again")
        assert ids_in(project.redis, "celery") == expected
    assert {run.task_id for run in project.effects.runs()} == {lost}
