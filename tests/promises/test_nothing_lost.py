"""Nothing published is lost.

From the moment ``apply_async`` returns, a task ends in exactly one way, whatever is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from tests.conftest import Scale
from tests.integration.conftest import SOON, Project
from tests.integration.figures import assert_each_ran_once, leases, wait_until_settled, worker_of
from tests.support.processes import REPOSITORY, Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@promise("nothing-lost", "never-two")
def test_a_killed_workers_task_runs_again_within_seconds(
    project: Project, workers: dict[str, Worker], scale: Scale
) -> None:
    """The worker and its processes are killed at once. Another one runs the task."""
    # Beat is dead all along: the workers' own passes recover.
    waited, name = [], ""
    for turn in range(scale.of(full=10, small=1)):
        gate = f"gate-{turn}"
        if name:
            workers[name] = project.start_worker(name)
        result = project.send("gate", gate)
        first = project.effects.run_of(result.id)
        name = worker_of(workers, first)
        workers[name].kill_group()
        killed_at = project.effects.now()
        second = project.effects.run_of(result.id, 2)
        waited.append(second.started_at - killed_at)
        project.effects.open_gate(gate)
        assert result.get(timeout=10) == gate
        assert second.attempt == 2
        assert worker_of(workers, second) != name
    print("seconds from the kill to the re-run:", [round(w, 2) for w in waited])
    assert not project.effects.overlaps()
    assert max(waited) <= 8
    wait_until_settled(project.redis, 10)


@promise("nothing-lost")
def test_a_killed_pool_processs_task_runs_again_and_its_neighbours_go_on(shared: Project) -> None:
    """Only the task of the killed process runs again."""
    mates = [shared.begin("gate", "mates") for _ in range(3)]
    result = shared.begin("gate", "gate")
    os.kill(shared.effects.run_of(result.id).pid, signal.SIGKILL)
    killed_at = shared.effects.now()
    again = shared.effects.run_of(result.id, 2, timeout_seconds=10)
    assert again.started_at - killed_at <= 8
    for gate in ("gate", "mates"):
        shared.effects.open_gate(gate)
    assert result.get(timeout=10) == "gate"
    for mate in mates:
        assert mate.get(timeout=10) == "mates"
        assert [run.attempt for run in shared.effects.runs(mate.id)] == [1]
    wait_until_settled(shared.redis, 10)


@promise("nothing-lost")
def test_what_the_broker_lost_is_sent_again_at_once(
    apart: Project, ledger_server: RedisServer
) -> None:
    """The queues' server comes back empty; the ledger is on another one."""
    apart.redis.client().config_set("save", "")
    apart.redis.client().config_set("appendonly", "no")
    apart.start_worker()
    gates = [apart.send("gate", "gate").id for _ in range(2)]
    for task_id in gates:
        apart.effects.run_of(task_id)
    queued = [apart.send("work", 0.01).id for _ in range(50)]
    parked = apart.send("work", 0.01, countdown=3600).id
    with ledger_server.client() as client:
        wait_for(lambda: client.hexists("{reliable:0}:meta", "broker"), 15, "a pass has met it")
    apart.redis.kill()
    apart.redis.start()
    apart.effects.open_gate("gate")
    started_at = apart.effects.now()
    wait_for(lambda: len(apart.effects.finished()) >= 52, 40, "all of them ran")
    assert apart.effects.now() - started_at < 15  # QUEUED_SECONDS is 60
    with ledger_server.client() as client:
        # What has its time waits for it.
        assert client.hget(f"{{reliable:0}}:task:{parked}", "state") == b"waiting"
    apart.app.control.revoke(parked)
    wait_until_settled(ledger_server, 20)
    assert_each_ran_once(apart.effects, [*gates, *queued])


@promise("nothing-lost")
def test_a_publisher_is_killed(soon: Project, scale: Scale) -> None:
    """Whatever `apply_async` has returned by then runs once."""
    soon.start_worker("one")
    dice = random.Random(11)
    for _ in range(scale.of(full=10, small=2)):
        soon.effects.client.delete("called")
        wanted = dice.randrange(20, scale.of(full=900, small=150))
        publisher = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.calling", "work", "[0]", "1", "1000"],
            cwd=REPOSITORY,
            env=soon.environ("", {}),
        )
        try:
            wait_for(lambda n=wanted: soon.effects.client.llen("called") >= n, 30, "published")
        finally:
            publisher.kill()
            publisher.wait()
        published = [one.decode() for one in soon.effects.client.lrange("called", 0, -1)]
        assert wanted <= len(published) < 1000
        wait_until_settled(soon.redis, 4 * SOON["QUEUED_SECONDS"])
        assert_each_ran_once(soon.effects, published)


@promise("nothing-lost", "never-two")
def test_redis_restarts_under_a_busy_worker(project: Project) -> None:
    """What runs goes on, what waited runs once, and the worker stays."""
    worker = project.start_worker()
    ids = [project.begin(name, "gate").id for name in ("gate", "plain_gate")]
    ids += [project.send(name, 0.01).id for name in ("work", "plain_work")]
    project.redis.client().config_set("appendfsync", "always")
    project.redis.kill()
    project.redis.start()
    later = project.send("work", 0.01)
    project.effects.open_gate("gate")
    for task_id in [*ids, later.id]:
        wait_for(lambda i=task_id: project.effects.finished(i), 25, f"{task_id} ended")
    wait_until_settled(project.redis, 25)
    assert worker.is_running
    assert not project.effects.overlaps()
    assert [len(project.effects.runs(task_id)) for task_id in ids] == [1, 1, 1, 1]


@promise("nothing-lost")
@pytest.mark.parametrize(
    "how",
    [signal.SIGTERM, pytest.param(signal.SIGQUIT, marks=pytest.mark.full)],
    ids=["warm", "cold"],
)
def test_a_rolling_restart_under_load(project: Project, how: signal.Signals) -> None:
    """A deployment replaces one worker after the other while tasks come."""
    workers = project.start_workers("one", "two")
    gated = [project.begin("gate", f"gate-{n}") for n in range(2)]
    short = [project.send("work", 0.1) for _ in range(60)]
    for n, name in enumerate(workers):
        workers[name].signal_main(how)
        if how == signal.SIGTERM:
            # What runs is waited for: the worker ends when its gated task has.
            project.effects.open_gate(f"gate-{n}")
            project.effects.open_gate(f"gate-{1 - n}")
        workers[name].wait_until_ended()
        workers[name] = project.start_worker(name)
        short += [project.send("work", 0.1) for _ in range(10)]
    for n in range(2):
        project.effects.open_gate(f"gate-{n}")
    for result in gated + short:
        result.get(timeout=30)
    finished = [len(project.effects.finished(result.id)) for result in gated + short]
    # A process that is ended coldly may be between the end of a body and its settlement.
    most = 0 if how == signal.SIGTERM else len(workers)
    assert min(finished) == 1
    assert sum(finished) <= len(finished) + most
    if how == signal.SIGTERM:
        assert {run.attempt for run in project.effects.runs()} == {1}
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)
    for name, worker in workers.items():
        assert worker.stop() == 0, name
    assert not leases(project.redis)
