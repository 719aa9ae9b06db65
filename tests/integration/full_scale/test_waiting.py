"""The figures of waiting and of deployments; small unless `--full` is given, shown with `-s`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import (
    RECORD,
    assert_each_ran_once,
    passes_finish,
    percentile,
    resident_mb,
    wait_until_settled,
)
from tests.integration.project.factory import Settings
from tests.support.load import Load
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

LATENESS_SECONDS = 1.0
GROWTH_MB = 5.0
SENT_SECONDS = 5.0

PUBLISHERS = 4


def publish_all(project: Project, count: int, eta: datetime) -> list[str]:
    """Publish so many tasks of one ETA, from several threads, and return their ids."""
    # Without results: else each would also be subscribed to, on one connection.
    publish = project.task("work").apply_async
    with ThreadPoolExecutor(PUBLISHERS) as publishers:
        results = publishers.map(lambda _: publish((0,), eta=eta, ignore_result=True), range(count))
        return [result.id for result in results]


def states(redis_server: RedisServer, task_ids: list[str]) -> list[bytes | None]:
    """The state in each task's record, None for one that is gone."""
    with redis_server.client() as client:
        pipeline = client.pipeline(transaction=False)
        for task_id in task_ids:
            pipeline.hget(RECORD + task_id, "state")
        return list(pipeline.execute())


@promise("waiting-is-safe")
def test_a_visibility_timeout_of_five_seconds_makes_nothing_late_or_twice(
    project: Project, scale: Scale
) -> None:
    options = {
        "visibility_timeout": 5,
        # kombu looks at every tenth chance only, and then no more often than every ten seconds.
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
    # Late, or the plain task would be acknowledged before any timeout matters.
    hasty = project.with_settings(
        celery={"broker_transport_options": options, "task_acks_late": True}
    )
    hasty.start_workers("one", "two")
    count = scale.of(full=20, small=8)
    countdown = scale.of(full=30.0, small=6.0)
    plain = hasty.send("plain_work", scale.of(full=20.0, small=7.0))
    etas = {}
    for _ in range(count):
        eta = project.effects.now() + countdown
        etas[hasty.send("work", 0.01, countdown=countdown).id] = eta
    wait_for(lambda: project.effects.finished(plain.id), countdown + 20, "the plain task")
    wait_for(lambda: project.effects.now() > max(etas.values()), countdown + 20, "the last ETA")
    wait_until_settled(project.redis, 20)
    assert_each_ran_once(project.effects, [plain.id, *etas])
    late = [project.effects.starts(task_id)[0] - eta for task_id, eta in etas.items()]
    ran = project.effects.runs(plain.id)[0]
    print(
        f"{count} tasks with countdown {countdown:g}: started {min(late):.3f} s to {max(late):.3f} "
        f"s after their ETA, p99 {percentile(late, 99):.3f} s; a plain task ran once for "
        f"{ran.last_seen_at - ran.started_at:.1f} s"
    )
    assert min(late) >= -0.2
    assert percentile(late, 99) <= LATENESS_SECONDS


def test_parked_tasks_cost_a_worker_no_memory(project: Project, scale: Scale) -> None:
    quick = project.with_settings(
        reliable=scale.of(full={}, small={"SWEEP_SECONDS": 0.5, "LEASE_SECONDS": 5})
    )
    worker = quick.start_worker("one")
    # Steady: code is loaded, connections are open, each child has run something.
    warm = [quick.send("work", 0.02).id for _ in range(40)]
    wait_until_settled(project.redis, 20)
    assert len({run.pid for run in project.effects.runs()}) == 2
    passes_finish(project.redis, 3, 20)
    before = resident_mb(worker)
    count = scale.of(full=20_000, small=500)
    eta = datetime.now(timezone.utc) + timedelta(days=1)
    began_at = project.effects.now()
    parked = publish_all(quick, count, eta)
    took = project.effects.now() - began_at
    assert set(states(project.redis, parked)) == {b"parked"}
    passes_finish(project.redis, scale.of(full=5, small=3), 30)
    after = resident_mb(worker)
    grown = [later - earlier for earlier, later in zip(before, after, strict=True)]
    print(
        f"{count} parked in {took:.1f} s: the main process grew from {before[0]:.1f} MB by "
        f"{grown[0]:.2f} MB, its children by {', '.join(f'{mb:.2f}' for mb in grown[1:])} MB"
    )
    assert sum(grown) < GROWTH_MB
    # Nothing of them is anywhere else, and nothing of them ran.
    with project.redis.client() as client:
        assert client.llen("celery") == 0
        assert not client.keys("unacked*")
    assert {run.task_id for run in project.effects.runs()} == set(warm)


def test_tasks_that_become_due_in_one_second_are_sent_at_once(
    project: Project, scale: Scale
) -> None:
    horizon = 3.0
    near = project.with_settings(reliable={"ETA_HORIZON_SECONDS": horizon})
    near.start_workers("one", "two")
    count = scale.of(full=2_000, small=200)
    # Time enough to publish them all before the first is due.
    due_at = project.effects.now() + scale.of(full=15.0, small=3.0)
    eta = datetime.fromtimestamp(due_at + horizon, timezone.utc)
    task_ids = publish_all(near, count, eta)
    assert set(states(project.redis, task_ids)) == {b"parked"}
    assert project.effects.now() < due_at, "this machine is too slow to publish them in time"
    waiting = list(task_ids)

    def all_sent() -> bool:
        found = zip(waiting, states(project.redis, waiting), strict=True)
        waiting[:] = [task_id for task_id, state in found if state == b"parked"]
        return not waiting

    wait_for(all_sent, due_at - project.effects.now() + 60, "all of them sent")
    took = project.effects.now() - due_at
    wait_until_settled(project.redis, 60)
    assert_each_ran_once(project.effects, task_ids)
    late = [run.started_at - eta.timestamp() for run in project.effects.runs()]
    print(
        f"{count} due at once: all sent {took:.2f} s after the first was due; started "
        f"{min(late):.2f} s to {max(late):.2f} s after their ETA"
    )
    assert took <= SENT_SECONDS
    assert min(late) >= -0.2


class TestRollingRestart:
    """Workers are stopped and started again, one by one, while work keeps coming."""

    @pytest.fixture
    def project_settings(self, project_settings: Settings) -> Settings:
        """No loss is forgiven: a loss becomes a dead letter."""
        return replace(project_settings, reliable={"MAX_LOSSES": 0})

    def test_a_rolling_restart_loses_nothing(self, project: Project, scale: Scale) -> None:
        names = ("one", "two", "three")
        workers = project.start_workers(*names)
        per_second = scale.of(full=200.0, small=50.0)
        seconds = scale.of(full=60.0, small=8.0)
        restarts = 0
        stops = []
        with Load(lambda: project.send("work", 0.01).id, per_second) as load:
            until = project.effects.now() + seconds
            while restarts < len(names) or (scale.is_full and project.effects.now() < until):
                name = names[restarts % len(names)]
                asked_at = project.effects.now()
                assert workers[name].stop() == 0
                stops.append(project.effects.now() - asked_at)
                workers[name] = project.start_worker(name)
                restarts += 1
            wait_for(lambda: project.effects.now() >= until, seconds + 5, "the end of the load")
        backlog = len(load.ids) - len(project.effects.finished())
        began_at = project.effects.now()
        wait_until_settled(project.redis, 300)
        took = project.effects.now() - began_at
        assert_each_ran_once(project.effects, load.ids)
        with project.redis.client(db=1) as results:
            stored = results.mget([f"celery-task-meta-{task_id}" for task_id in load.ids])
        assert all(found is not None and b'"SUCCESS"' in found for found in stored)
        print(
            f"{restarts} restarts (a stop took {min(stops):.1f} s to {max(stops):.1f} s) while "
            f"{len(load.ids)} tasks were published in {load.seconds:.1f} s "
            f"({load.reached_per_second:.0f}/s): 0 losses, 0 lost, 0 run "
            f"twice; the {backlog} that were left took {took:.1f} s"
        )
        # At small scale a machine that is busy with other things may be slower.
        assert not scale.is_full or load.reached_per_second >= 0.95 * per_second
        for worker in workers.values():
            assert worker.stop() == 0
        with project.redis.client() as client:
            assert not client.keys("unacked*")
