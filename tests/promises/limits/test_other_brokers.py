"""A broker that is not Redis keeps its own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import RECORD, record_of, wait_until_settled
from tests.support.promises import promise
from tests.support.rabbit_server import RabbitServer, why_no_rabbit
from tests.support.waiting import wait_for


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


@promise("other-brokers")
def test_a_worker_starts_runs_recovers_and_leaves_nothing(on_files: Project) -> None:
    """On a broker of files a task survives its process, and its worker."""
    worker = on_files.start_worker("one", options=NO_HEARTBEAT)
    assert on_files.send("work", 0.01).get(timeout=10) == "worked"
    result = on_files.send("gate", "gate")
    worker.kill_child(on_files.effects.run_of(result.id).pid)
    wait_for(lambda: len(on_files.effects.runs(result.id)) == 2, 10, "the second run")
    # The worker dies with what it held: no unacked hash gives that back, so it is sent from the
    # record.
    worker.kill_group()
    on_files.start_worker("two", options=NO_HEARTBEAT)
    wait_for(lambda: len(on_files.effects.runs(result.id)) == 3, 15, "the third run")
    on_files.effects.open_gate("gate")
    assert result.get(timeout=10) == "gate"
    assert [run.attempt for run in on_files.effects.runs(result.id)] == [1, 2, 3]
    client = on_files.redis.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "settled")


NO_HEARTBEAT = ("--without-heartbeat",)
TIMEOUT_SECONDS = 12


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """One for all tests of this module, as it takes its time to start."""
    if reason := why_no_rabbit():
        pytest.skip(reason)
    settings = {"consumer_timeout": str(TIMEOUT_SECONDS * 1000), "channel_tick_interval": "1000"}
    with RabbitServer(tmp_path_factory.mktemp("rabbit"), settings) as server:
        yield server


@pytest.fixture
def on_rabbit(project: Project, rabbit: RabbitServer) -> Project:
    """The project on a RabbitMQ that waits twelve seconds, with the ledger on Redis."""
    return project.with_settings(
        broker_url=rabbit.url(),
        celery={"task_default_queue": f"celery-{uuid4().hex}"},
        reliable={
            "REDIS_URL": project.redis.url(),
            "LEASE_SECONDS": 4,
            "SWEEP_SECONDS": 1,
        },
    )


@pytest.mark.full
@promise("other-brokers")
def test_a_task_may_run_longer_than_the_broker_waits_and_so_may_what_is_behind_it(
    on_rabbit: Project,
) -> None:
    """RabbitMQ would end the worker after `consumer_timeout`."""
    worker = on_rabbit.start_worker("one", options=NO_HEARTBEAT, concurrency=1)
    running = on_rabbit.begin("gate", "gate")
    behind = [on_rabbit.send("work", 0.01) for _ in range(3)]
    began_at = on_rabbit.effects.now()
    wait_for(
        lambda: on_rabbit.effects.now() - began_at > 2 * TIMEOUT_SECONDS, 60, "longer than it waits"
    )
    # None of them was handed to the busy worker.
    with on_rabbit.app.connection_for_read() as connection:
        queue = on_rabbit.app.conf.task_default_queue
        assert connection.default_channel.queue_declare(queue, passive=True).message_count == 3
    on_rabbit.effects.open_gate("gate")
    assert running.get(timeout=20) == "gate"
    for result in behind:
        assert result.get(timeout=20) == "worked"
    assert worker.is_running
    assert [len(on_rabbit.effects.runs(one.id)) for one in (running, *behind)] == [1] * 4
    # The worker may hold as many as ever.
    later = [on_rabbit.send("work", 0.01) for _ in range(8)]
    for result in later:
        assert result.get(timeout=20) == "worked"
    wait_until_settled(on_rabbit.redis, 30)


@pytest.mark.full
@promise("other-brokers")
def test_nothing_waits_for_a_busy_worker_while_another_is_idle(
    project: Project, start_rabbit: Callable[..., RabbitServer]
) -> None:
    """The broker delivers no more than can begin, whatever `worker_prefetch_multiplier` says."""
    on_rabbit = project.with_settings(
        broker_url=start_rabbit().url(),
        # What waits for so long in a worker would go back.
        reliable={"REDIS_URL": project.redis.url(), "LEASE_SECONDS": 60, "QUEUED_SECONDS": 90},
    )
    greedy = (*NO_HEARTBEAT, "--prefetch-multiplier", "4")
    on_rabbit.start_worker("one", options=greedy, concurrency=1)
    running = on_rabbit.begin("gate", "gate")
    behind = [on_rabbit.send("work", 0.01) for _ in range(3)]
    on_rabbit.start_worker("two", options=greedy, concurrency=1)
    for result in behind:
        assert result.get(timeout=30) == "worked"
    on_rabbit.effects.open_gate("gate")
    assert running.get(timeout=20) == "gate"


@pytest.mark.full
@promise("other-brokers")
def test_a_queue_that_goes_with_its_consumer_outlives_a_long_task(on_rabbit: Project) -> None:
    """RabbitMQ deletes a queue with `auto_delete` when nobody consumes it any more."""
    brief = {"exchange": "brief", "routing_key": "brief", "auto_delete": True}
    on_rabbit = on_rabbit.with_settings(celery={"task_queues": {"brief": brief}})
    on_rabbit.start_worker("one", options=NO_HEARTBEAT, concurrency=1)
    running = on_rabbit.begin("gate", "gate", queue="brief")
    # Of a plain task nobody has a record.
    behind = on_rabbit.send("plain_work", 0.01, queue="brief")
    began_at = on_rabbit.effects.now()
    wait_for(lambda: on_rabbit.effects.now() - began_at > 7, 30, "longer than a lease")
    on_rabbit.effects.open_gate("gate")
    assert running.get(timeout=20) == "gate"
    assert behind.get(timeout=20) == "worked"


@pytest.mark.full
@promise("other-brokers")
def test_what_came_back_to_a_busy_worker_runs_where_one_is_idle(on_rabbit: Project) -> None:
    """The broker hands it to the busy worker again and again, as there is no other: that one runs a
    plain task, which was acknowledged as it began.
    """
    on_rabbit.start_worker("one", options=NO_HEARTBEAT, concurrency=1)
    running = on_rabbit.begin("plain_gate", "gate")
    behind = on_rabbit.send("work", 0.01)
    claims, losses = set[str](), set[str]()

    def has_come_back_thrice() -> bool:
        # What was delivered before is claimed before it is opened.
        record = record_of(on_rabbit.redis, behind.id)
        claims.add(record.get("claim", ""))
        losses.add(record.get("losses", "0"))
        return len(claims - {""}) == 3

    wait_for(has_come_back_thrice, 90, "it has come back three times")
    on_rabbit.start_worker("two", options=NO_HEARTBEAT, concurrency=1)
    assert behind.get(timeout=60) == "worked"
    (run,) = on_rabbit.effects.runs(behind.id)
    assert run.worker.startswith("two@")
    assert losses == {"0"}
    on_rabbit.effects.open_gate("gate")
    assert running.get(timeout=20) == "gate"
    wait_until_settled(on_rabbit.redis, 30)


@pytest.mark.full
@promise("other-brokers")
@pytest.mark.parametrize("how", ["worker", "child"])
def test_what_was_acknowledged_early_comes_back_once(on_rabbit: Project, how: str) -> None:
    """RabbitMQ has forgotten it by then: it is sent from its record."""
    dying = on_rabbit.start_worker("one", options=NO_HEARTBEAT, concurrency=1)
    running = on_rabbit.begin("gate", "gate")
    wait_for(lambda: "long_task_acknowledged" in dying.log_text(), 30, "it is acknowledged")
    # Nobody takes what waits here: that a queue is not empty proves nothing of it.
    if how == "child":
        dying.kill_child(on_rabbit.effects.runs(running.id)[0].pid)
    else:
        for _ in range(3):
            on_rabbit.send("gate", "elsewhere")
        dying.kill_group()
        on_rabbit.start_worker("two", options=NO_HEARTBEAT, concurrency=4)
    wait_for(lambda: len(on_rabbit.effects.runs(running.id)) == 2, 30, "it runs again")
    for gate in ("gate", "elsewhere"):
        on_rabbit.effects.open_gate(gate)
    assert running.get(timeout=20) == "gate"
    assert [run.attempt for run in on_rabbit.effects.runs(running.id)] == [1, 2]
    assert not on_rabbit.effects.overlaps()
    wait_until_settled(on_rabbit.redis, 30)
