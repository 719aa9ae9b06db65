"""A Redis that answers, and only that it is still loading its data."""

from __future__ import annotations

import pytest
from kombu.exceptions import OperationalError

from celery_reliable.exceptions import NotPublished
from tests.integration.conftest import Project
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

#: Of each command of the append-only file; the server looks at its clients after every 1024.
DELAY_MICROSECONDS = 200


def restart_loading(server: RedisServer, seconds: float) -> None:
    """Kill a server and start it with what takes it at least so long to load."""
    with server.client(db=9) as client, client.pipeline(transaction=False) as pipe:
        for number in range(int(seconds * 1_000_000 / DELAY_MICROSECONDS)):
            pipe.set("filler", number)
        pipe.execute()
    with server.client() as client:
        # All of it stands in the file, as with `appendfsync always`.
        client.config_set("appendfsync", "always")
        client.set("filler", "last")
    server.kill()
    server.options = {**server.options, "key-load-delay": str(DELAY_MICROSECONDS)}
    server.start()
    assert server.is_loading()


@promise("ledger-away", "nothing-lost")
def test_a_worker_outlives_it(project: Project) -> None:
    # The lease runs out meanwhile.
    quick = project.with_settings(reliable={"LEASE_SECONDS": 4, "SWEEP_SECONDS": 1})
    worker = quick.start_worker("one")
    short, long = quick.send("work", 3.0), quick.send("gate", "gate")
    wait_for(lambda: len(project.effects.runs()) == 2, 20, "both run")
    waiting = [quick.send("work", 0.01) for _ in range(5)]
    restart_loading(project.redis, 6)
    with pytest.raises(OperationalError) as refused:
        quick.send("work", 0.01)
    assert isinstance(refused.value, NotPublished)
    project.redis.wait_until_loaded()
    project.effects.open_gate("gate")
    # What Celery's client had subscribed to is gone with the server: `get` may never hear.
    for result in (short, long, *waiting):
        wait_for(lambda: result.state == "SUCCESS", 30, "its outcome")  # noqa: B023
    assert worker.is_running
    assert {run.attempt for run in project.effects.runs()} == {1}
    assert len(project.effects.runs()) == 2 + len(waiting)
    client = project.redis.client()
    wait_for(lambda: not client.keys("{reliable:0}:task:*"), 20, "every record gone")
