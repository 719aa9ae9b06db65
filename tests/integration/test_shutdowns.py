"""A deployment is no death: whatever way workers and pool processes are ended on purpose, nothing
is lost, nothing runs twice to its end, and nothing is charged.  Also at the worst moments.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import RECORD, WORKERS, ids_in, wait_until_settled
from tests.integration.project.factory import Settings
from tests.integration.project.hindered import KILL_WHILE_LOCKED
from tests.integration.project.tasks import Broken
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

# Far below QUEUED_SECONDS: what is given back is not left for the sweeper to find.
SOON_SECONDS = 6.0

REMAPPED = {"REMAP_SIGTERM": "SIGQUIT"}


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    """No loss is forgiven: whatever is charged becomes a dead letter, and its result is missed."""
    return replace(project_settings, reliable={"MAX_LOSSES": 0})


def left_behind(redis_server: RedisServer, name: str) -> list[bytes]:
    """What remains of a worker in Redis: its lease, its claims, its unacked hash."""
    client = redis_server.client()
    own = f"{name}@".encode()
    keys = [key for key in client.keys("*") if own in key and b"pidbox" not in key]
    return keys + [one for one in client.zrange(WORKERS, 0, -1) if own in one]


def losses(redis_server: RedisServer, task_id: str) -> int:
    """The losses in the task's record."""
    return int(redis_server.client().hget(RECORD + task_id, "losses") or 0)


def busy(project: Project, gate: str) -> tuple[Worker, list[Any], list[Any]]:
    """A worker, the two tasks that it runs to a gate, and four that wait behind them."""
    one = project.start_worker("one")
    running = [project.begin("gate", gate) for _ in range(2)]
    return one, running, [project.send("work", 0.01) for _ in range(4)]


def remote(project: Project, *command: Any, **arguments: Any) -> None:
    """Send one remote command and require that a worker did it."""
    control = project.app.control
    (answer,) = control.broadcast(*command, reply=True, timeout=10, limit=1, **arguments)
    (reply,) = answer.values()
    assert "ok" in reply


def test_a_warm_stop_waits_for_what_runs_and_leaves_the_rest(project: Project) -> None:
    one, running, behind = busy(project, "warm")
    assert left_behind(project.redis, "one")
    one.signal_main(signal.SIGTERM)
    asked_at = project.effects.now()
    # Longer than the lease: it is kept while the last task runs.
    wait_for(lambda: project.effects.now() - asked_at > 12, 20, "more than a lease")
    assert one.is_running
    assert [len(project.effects.runs(result.id)) for result in running] == [1, 1]
    project.effects.open_gate("warm")
    assert one.wait_until_ended() == 0
    assert not left_behind(project.redis, "one")
    assert ids_in(project.redis, "celery") == [result.id for result in behind]
    project.start_worker("two")
    for result in running + behind:
        result.get(timeout=10)
        assert [run.attempt for run in project.effects.runs(result.id)] == [1]
    wait_until_settled(project.redis, 10)


@pytest.mark.full
def test_a_worker_that_is_told_to_stop_begins_nothing_more(project: Project) -> None:
    """Its processes take their own messages, and would go on to for a second."""
    one = project.start_worker("one", concurrency=1)
    first = project.begin("gate", "door")
    ids = [project.send("work", 0.05).id for _ in range(40)]
    project.effects.open_gate("door")
    project.effects.run_of(ids[0])
    assert one.stop() == 0
    began = [run.task_id for run in project.effects.runs() if run.task_id != first.id]
    # A machine that is busy may need half a second for the signal.
    assert len(began) < 10
    assert [*began, *ids_in(project.redis, "celery")] == ids


@pytest.mark.full
def test_a_cold_stop_hands_over_at_once(project: Project) -> None:
    # At once is before anybody sweeps.
    rare = {"SWEEP_SECONDS": 30, "LEASE_SECONDS": 120, "QUEUED_SECONDS": 240}
    project = project.with_settings(reliable={"MAX_LOSSES": 0, **rare})
    one, running, behind = busy(project, "cold")
    project.start_worker("two")
    one.signal_main(signal.SIGQUIT)
    asked_at = project.effects.now()
    again = [project.effects.run_of(result.id, 2) for result in running]
    took = max(run.started_at for run in again) - asked_at
    print("seconds from the cold stop to the re-run:", round(took, 2))
    assert took <= SOON_SECONDS
    assert [run.attempt for run in again] == [2, 2]
    assert all(run.worker.startswith("two@") for run in again)
    assert [losses(project.redis, result.id) for result in running] == [0, 0]
    one.wait_until_ended()
    assert not left_behind(project.redis, "one")
    project.effects.open_gate("cold")
    for result in running + behind:
        result.get(timeout=10)
        assert len(project.effects.finished(result.id)) == 1
    assert [[run.attempt for run in project.effects.runs(r.id)] for r in behind] == [[1]] * 4
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)


@pytest.mark.full
def test_a_soft_stop_waits_for_longer_than_a_lease_and_then_hands_over(project: Project) -> None:
    project = project.with_settings(
        celery={"worker_soft_shutdown_timeout": 12},
        reliable={"MAX_LOSSES": 0, "LEASE_SECONDS": 4, "SWEEP_SECONDS": 1, "STALL_SECONDS": 2},
    )
    one = project.start_worker("one", environ=REMAPPED)
    ends, goes_on = project.begin("gate", "soft"), project.begin("gate", "long")
    project.start_worker("two")
    one.signal_main(signal.SIGTERM)
    asked_at = project.effects.now()
    wait_for(lambda: project.effects.now() - asked_at > 8, 15, "the stop goes on")
    project.effects.open_gate("soft")
    assert ends.get(timeout=10) == "soft"
    assert one.is_running
    again = project.effects.run_of(goes_on.id, 2)
    assert 12 <= again.started_at - asked_at <= 12 + SOON_SECONDS
    assert losses(project.redis, goes_on.id) == 0
    project.effects.open_gate("long")
    assert goes_on.get(timeout=10) == "long"
    one.wait_until_ended()
    assert not left_behind(project.redis, "one")
    assert [run.attempt for run in project.effects.runs(ends.id)] == [1]
    assert [run.attempt for run in project.effects.runs(goes_on.id)] == [1, 2]
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)


@pytest.mark.full
def test_remote_grow_shrink_and_restart_of_the_pool_lose_nothing(project: Project) -> None:
    project = project.with_settings(celery={"worker_pool_restarts": True})
    one = project.start_worker("one")
    held = project.begin("gate", "held")
    remote(project, "pool_grow", arguments={"n": 1})
    wait_for(lambda: len(one.children()) == 3, 10, "a third process")
    remote(project, "pool_shrink", arguments={"n": 1})
    wait_for(lambda: len(one.children()) == 2, 10, "two processes")
    before = set(one.children())
    project.app.control.broadcast("pool_restart", arguments={"reload": False})
    results = [project.send("work", 0.05) for _ in range(10)]
    project.effects.open_gate("held")
    assert held.get(timeout=30) == "held"
    for result in results:
        result.get(timeout=30)
    wait_for(lambda: set(one.children()).isdisjoint(before), 15, "new processes")
    assert len(project.effects.finished()) == 11
    assert not project.effects.overlaps()
    assert one.stop() == 0
    assert not left_behind(project.redis, "one")
    project.close()
    wait_until_settled(project.redis, 10)


@pytest.mark.full
@pytest.mark.parametrize("pool", ["solo", "threads", "gevent"])
def test_a_stop_of_another_pool_charges_nothing(project: Project, pool: str) -> None:
    one = project.start_worker("one", pool=pool, concurrency=1)
    running = project.begin("gate", "gate")
    project.start_worker("two")
    waiting = [project.send("work", 0.01) for _ in range(3)]
    # A greenlet can be stopped; a thread and the main process itself run their task to its end.
    is_stopped = pool == "gevent"
    one.signal_main(signal.SIGQUIT if is_stopped else signal.SIGTERM)
    if not is_stopped:
        project.effects.open_gate("gate")
    one.wait_until_ended()
    project.effects.open_gate("gate")
    assert not left_behind(project.redis, "one")
    assert running.get(timeout=15) == "gate"
    for result in waiting:
        assert result.get(timeout=15) == "worked"
    for result in [running, *waiting]:
        assert len(project.effects.finished(result.id)) == 1
    assert len(project.effects.runs(running.id)) == (2 if is_stopped else 1)
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)


@pytest.mark.full
def test_a_process_that_is_forked_beside_a_pass_hangs_in_none_of_its_locks(
    project: Project,
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1})
    project.start_worker("one", environ={"TRAP": "kills"}, concurrency=1)
    pid = project.effects.run_of(project.send("work", 0.0).id).pid
    project.effects.client.set(KILL_WHILE_LOCKED, pid)
    wait_for(
        lambda: not project.effects.client.exists(KILL_WHILE_LOCKED), 15, "a pass to kill from"
    )

    # What a task returns is stored with its settlement; a failure goes through Celery's backend.
    after = project.send("failing")

    with pytest.raises(Broken):
        after.get(timeout=15)
    assert project.effects.run_of(after.id).pid != pid
