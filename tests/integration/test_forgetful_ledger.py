"""The ledger's Redis dies, and a replica that lags takes its place: nothing runs beside itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

import pytest

from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD, WORKERS, passes_finish, wait_until_settled
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer, free_port
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

HORIZON_SECONDS = 2


def go_on(
    apart: Project, ledger: RedisServer, workers: Sequence[Worker], task_ids: Sequence[str]
) -> None:
    """See everything end and a new task run, with workers that nobody has touched."""
    wanted = set(task_ids)
    wait_for(
        lambda: wanted <= {run.task_id for run in apart.effects.finished()},
        60,
        "all of them finished",
    )
    assert apart.send("work", 0.01).get(timeout=30) == "worked"
    wait_until_settled(ledger, 60)
    with apart.redis.client() as client:
        wait_for(lambda: not client.llen("celery"), 20, "nothing in the queue")
        wait_for(lambda: not client.keys("unacked*"), 20, "nothing in the workers' unacked hashes")
    with ledger.client() as client:
        wait_for(lambda: client.zcard(WORKERS) == len(workers), 20, "both leases")
    assert all(worker.is_running for worker in workers)
    # An attempt without a record stores its result with nobody waiting for that.
    wait_for(
        lambda: {apart.app.AsyncResult(task_id).state for task_id in wanted} == {"SUCCESS"},
        20,
        "all results stored",
    )


@pytest.fixture
def replica(ledger: RedisServer, start_redis: StartRedis) -> RedisServer:
    """A replica of the ledger's Redis."""
    server = start_redis()
    with server.client() as client:
        client.replicaof("127.0.0.1", ledger.port)
        wait_for(lambda: client.info("replication")["master_link_status"] == "up", 15, "it follows")
    return server


@pytest.fixture
def ledger(start_redis: StartRedis) -> RedisServer:
    """A Redis for the ledger alone that can be restarted."""
    return start_redis()


@pytest.fixture
def address(ledger: RedisServer) -> Iterator[RedisProxy]:
    """Where the ledger is found, whichever of the two it is."""
    with RedisProxy(ledger.port) as running:
        yield running


@pytest.fixture
def apart(project: Project, address: RedisProxy) -> Project:
    """The project with its ledger there."""
    times = {**SOON, "ETA_HORIZON_SECONDS": HORIZON_SECONDS, "REDIS_URL": address.url()}
    return project.with_settings(reliable=times)


@promise("as-durable-as-redis", "never-two")
def test_nothing_is_dropped_and_nothing_runs_beside_itself(
    apart: Project,
    ledger: RedisServer,
    replica: RedisServer,
    address: RedisProxy,
) -> None:
    send = apart.send
    one = apart.start_worker("one", concurrency=6)
    # What the replica knows: tasks that run, wait in a queue, or wait for their time.
    running = [send("gate", "early").id, send("follow", ["retry:early", "finish"]).id]
    settled = send("gate", "between")
    for task_id in (*running, settled.id):
        apart.effects.run_of(task_id)
    claimed = send("gate", "late", queue="second").id
    quick = send("work", 0.01, queue="second")
    eta = datetime.now(timezone.utc) + timedelta(seconds=3 * HORIZON_SECONDS)
    parked = send("gate", "late", eta=eta).id
    known = [send("work", 0.01, queue="waits").id for _ in range(3)]
    cut_off(replica, ledger)

    # What it does not: another worker, and what became of all these.
    apart.effects.open_gate("between")
    assert settled.get(timeout=15) == "between"
    two = apart.start_worker("two", options=("-Q", "second,third"))
    # Its two processes are then held by two tasks, in whichever order its queues take turns.
    apart.effects.run_of(quick.id)
    late = [send("gate", "late", queue="third").id, send("follow", ["retry:late", "finish"]).id]
    for task_id in (claimed, parked, *late):
        apart.effects.run_of(task_id)
    ended = send("work", 0.01)
    assert [ended.get(timeout=15), quick.get(timeout=15)] == ["worked", "worked"]
    unknown = [send("work", 0.01, queue="waits").id for _ in range(3)]
    with ledger.client() as client:
        for task_id in (settled.id, ended.id, quick.id):
            wait_for(lambda i=task_id: not client.exists(RECORD + i), 10, "it is settled")
    with replica.client() as client:
        states = [
            client.hget(RECORD + task_id, "state")
            for task_id in (settled.id, claimed, quick.id, parked, late[0], ended.id)
        ]
    assert states == [b"running", b"queued", b"queued", b"parked", None, None]
    # So late that the sweeper looks at once at what the replica takes for queued.
    overdue_at = apart.effects.starts(claimed)[0] + SOON["QUEUED_SECONDS"]
    wait_for(lambda: apart.effects.now() > overdue_at, 20, "it is overdue there")

    ledger.kill()
    address.server_port = replica.port
    with replica.client() as client:
        client.replicaof("NO", "ONE")

    # Nobody died: what runs goes on, and not beside itself.
    passes_finish(replica, 6, 30)
    untouched = [*running, claimed, parked, *late]
    assert [len(apart.effects.runs(task_id)) for task_id in untouched] == [1] * len(untouched)
    for gate in ("early", "late"):
        apart.effects.open_gate(gate)
    apart.app.control.add_consumer("waits")
    everything = [*untouched, settled.id, quick.id, *known, ended.id, *unknown]
    go_on(apart, replica, [one, two], everything)
    assert apart.effects.overlaps() == []
    runs = {task_id: len(apart.effects.runs(task_id)) for task_id in everything}
    print(f"{len(runs)} tasks, {sum(runs.values())} runs")
    # What had ended and been stored has no reason to run again.
    assert runs[ended.id] == 1


@promise("as-durable-as-redis")
def test_what_was_begun_in_the_lost_moments_runs_beside_itself_and_ends_once(
    project: Project, ledger: RedisServer, replica: RedisServer, address: RedisProxy
) -> None:
    """The broker is lost with it: the message is in its queue again, and its claim nowhere."""
    behind = project.with_settings(
        broker_url=address.url(), result_url=project.redis.url(), reliable=SOON
    )
    begun = behind.send("gate", "gate", queue="second")
    cut_off(replica, ledger)
    one = behind.start_worker("one", concurrency=1, options=("-Q", "celery,second"))
    behind.effects.run_of(begun.id)
    two = behind.start_worker("two", concurrency=1, options=("-Q", "celery,second"))

    ledger.kill()
    address.server_port = replica.port
    with replica.client() as client:
        client.replicaof("NO", "ONE")
    wait_for(lambda: len(behind.effects.runs(begun.id)) == 2, 30, "another attempt")
    behind.effects.open_gate("gate")

    assert begun.get(timeout=30) == "gate"
    go_on(behind, replica, [one, two], [begun.id])
    assert len(behind.effects.runs(begun.id)) == 2


def cut_off(replica: RedisServer, ledger: RedisServer) -> None:
    """Let the replica have all there is now, and nothing of what comes later."""
    with ledger.client() as ahead, replica.client() as behind:
        assert ahead.wait(1, 5000) == 1
        behind.replicaof("127.0.0.1", free_port())
