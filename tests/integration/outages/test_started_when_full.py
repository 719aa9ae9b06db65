"""A server that is full while no worker is alive: whoever starts then works off what is there."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import RECORD
from tests.support.waiting import wait_for


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_starts_on_a_full_server_works_off_what_is_there(
    soon: Project, pool: str
) -> None:
    first = soon.start_worker("first", concurrency=1, pool=pool)
    interrupted = soon.send("follow", ["gate:door", "finish"])
    soon.effects.run_of(interrupted.id)
    results = {
        "plain": [soon.send("work", 0.01) for _ in range(5)],
        "of one object": [soon.send("in_line", "object", 0.2) for _ in range(4)],
        "with a place": [soon.send("placed", "places", 0.1) for _ in range(4)],
        "retried": [soon.send("flaky", 2)],
        "later": [soon.send("work", 0, countdown=3)],
    }
    first.kill_group()
    client = soon.redis.client()
    client.config_set("maxmemory", 1)

    second = soon.start_worker("second", pool=pool)

    soon.effects.open_gate("door")
    for kind, found in results.items():
        for one in [interrupted, *found]:
            wait_for(lambda r=one: soon.effects.finished(r.id), 40, f"what is {kind} runs")
    wait_for(lambda: not client.keys(RECORD + "*"), 30, "every task has ended")
    assert second.is_running
    client.config_set("maxmemory", 0)
    client.close()
