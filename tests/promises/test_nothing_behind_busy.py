"""Nothing waits behind a busy worker.

A worker takes no more than it can begin. All else waits in its queue, where an idle worker finds
it.
"""

from __future__ import annotations

import socket

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, ids_in, wait_until_settled
from tests.support.promises import promise
from tests.support.redis_server import RedisServer


@promise("nothing-behind-busy")
@pytest.mark.parametrize(
    ("pool", "where"),
    [("prefork", ""), ("threads", ""), ("solo", ""), ("gevent", ""), ("prefork", "far")],
)
def test_what_comes_behind_a_long_task_begins_where_somebody_is_free(
    pool: str, where: str, project: Project, apart: Project, ledger_server: RedisServer
) -> None:
    """It waits in its queue, in the order of publication, also if it came to the busy worker."""
    chosen = apart if where else project
    chosen.start_worker("one", pool=pool, concurrency=1, options=("-Q", "a,b"))
    long = chosen.begin("gate", "end", queue="a")
    names = ("work", "plain_work", "work")
    ids = {queue: [chosen.send(one, 0.01, queue=queue).id for one in names] for queue in "ab"}
    # It takes seconds to start; the busy one is offered some of them meanwhile.
    chosen.start_worker("two", pool=pool, concurrency=1, options=("-Q", "c"))
    # What the main process does not see before its own task is over lies in an inbox; with
    # greenlets, before one is free.
    is_in_inbox = pool in ("solo", "gevent")
    inbox = ids_in(chosen.redis, "celery-reliable.inbox:b") if is_in_inbox else []
    assert ids_in(chosen.redis, "a") == ids["a"]
    assert [*inbox, *ids_in(chosen.redis, "b")] == ids["b"]

    chosen.app.control.add_consumer("b", destination=[f"two@{socket.gethostname()}"])

    # What comes now waits for nobody either.
    for _ in range(2):
        runs = [chosen.effects.run_of(one) for one in ids["b"]]
        assert {run.worker.partition("@")[0] for run in runs} == {"two"}
        assert [run.started_at for run in runs] == sorted(run.started_at for run in runs)
        ids["b"].append(chosen.send("work", 0.01, queue="b").id)
    assert ids_in(chosen.redis, "a") == ids["a"]
    assert chosen.effects.runs(long.id)[0].outcome is None
    chosen.effects.open_gate("end")
    runs = [chosen.effects.run_of(one) for one in ids["a"]]
    assert {run.worker.partition("@")[0] for run in runs} == {"one"}
    assert [run.started_at for run in runs] == sorted(run.started_at for run in runs)
    for server in (chosen.redis, ledger_server):
        wait_until_settled(server, 15)
    assert_each_ran_once(chosen.effects, [long.id, *ids["a"], *ids["b"]])
