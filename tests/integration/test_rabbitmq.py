"""On RabbitMQ: what runs longer than it waits for an acknowledgement, and what becomes of that."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, wait_until_settled
from tests.support.promises import promise
from tests.support.rabbit_server import RabbitServer, why_no_rabbit
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

NO_HEARTBEAT = ("--without-heartbeat",)
TIMEOUT_SECONDS = 6


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
    """The project on a RabbitMQ that waits six seconds, with the ledger on Redis."""
    return project.with_settings(
        broker_url=rabbit.url(),
        celery={"task_default_queue": f"celery-{uuid4().hex}"},
        reliable={
            "REDIS_URL": project.redis.url(),
            "ACKNOWLEDGE_SECONDS": 2,
            "LEASE_SECONDS": 4,
            "SWEEP_SECONDS": 1,
        },
    )


def waiting(on_rabbit: Project) -> int:
    """How many messages wait in the project's queue."""
    with on_rabbit.app.connection_for_read() as connection:
        channel = connection.default_channel
        found = channel.queue_declare(on_rabbit.app.conf.task_default_queue, passive=True)
    return int(found.message_count)


@promise("other-brokers")
def test_a_task_may_run_longer_than_the_broker_waits_and_so_may_what_is_behind_it(
    on_rabbit: Project,
) -> None:
    worker = on_rabbit.start_worker("one", options=NO_HEARTBEAT, concurrency=1)
    running = on_rabbit.send("gate", "gate")
    on_rabbit.effects.run_of(running.id)
    behind = [on_rabbit.send("work", 0.01) for _ in range(3)]
    began_at = on_rabbit.effects.now()
    wait_for(
        lambda: on_rabbit.effects.now() - began_at > 2 * TIMEOUT_SECONDS, 30, "longer than it waits"
    )
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


@promise("other-brokers")
def test_what_waits_behind_a_long_task_goes_on_elsewhere_but_not_soon(on_rabbit: Project) -> None:
    soon = on_rabbit.with_settings(
        celery={"task_default_queue": on_rabbit.app.conf.task_default_queue},
        reliable={**on_rabbit.settings.reliable, "GIVE_BACK_SECONDS": 0.1},
    )
    two = soon.start_worker("two", options=("-Q", "nothing"), wait=False, concurrency=1)
    soon.start_worker("one", options=NO_HEARTBEAT, concurrency=1)
    long = soon.send("gate", "end")
    soon.effects.run_of(long.id)
    sent_at = soon.effects.now()
    behind = [soon.send("work", 0.01).id for _ in range(2)]
    wait_for(lambda: waiting(soon) == 0, 10, "the first has fetched all of it")
    two.wait_until_ready()
    queue = soon.app.conf.task_default_queue
    soon.app.control.add_consumer(queue, destination=[f"two@{socket.gethostname()}"])

    runs = [soon.effects.run_of(one, timeout_seconds=30) for one in behind]

    # GIVE_BACK_SECONDS is for brokers of the other kind.
    assert all(run.started_at - sent_at > 1.5 for run in runs), "ACKNOWLEDGE_SECONDS"
    assert {run.worker.partition("@")[0] for run in runs} == {"two"}
    assert soon.effects.runs(long.id)[0].outcome is None
    soon.effects.open_gate("end")
    assert long.get(timeout=20) == "end"
    wait_until_settled(soon.redis, 30)
    assert_each_ran_once(soon.effects, [long.id, *behind])


@promise("other-brokers")
@pytest.mark.parametrize("how", ["worker", "child"])
def test_what_was_acknowledged_early_comes_back_once(on_rabbit: Project, how: str) -> None:
    dying = on_rabbit.start_worker("one", options=NO_HEARTBEAT, concurrency=1)
    running = on_rabbit.send("gate", "gate")
    on_rabbit.effects.run_of(running.id)
    wait_for(lambda: "long_task_acknowledged" in dying.log_text(), 30, "it is acknowledged")
    # Nobody takes what waits here: that a queue is not empty proves nothing of it.
    if how == "child":
        dying.kill_child(on_rabbit.effects.runs(running.id)[0].pid)
    else:
        for _ in range(3):
            on_rabbit.send("gate", "elsewhere")
        if how == "worker":
            dying.kill_group()
        else:
            dying.signal_main(signal.SIGQUIT)
            dying.wait_until_ended()
        on_rabbit.start_worker("two", options=NO_HEARTBEAT, concurrency=4)
    wait_for(lambda: len(on_rabbit.effects.runs(running.id)) == 2, 30, "it runs again")
    for gate in ("gate", "elsewhere"):
        on_rabbit.effects.open_gate(gate)
    assert running.get(timeout=20) == "gate"
    assert [run.attempt for run in on_rabbit.effects.runs(running.id)] == [1, 2]
    assert not on_rabbit.effects.overlaps()
    wait_until_settled(on_rabbit.redis, 30)
