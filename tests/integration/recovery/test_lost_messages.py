"""What the broker lost is found in the ledger and sent again."""

from __future__ import annotations

import random
import subprocess
import sys

from tests.conftest import Scale, StartRedis
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD, assert_each_ran_once, wait_until_settled
from tests.support.processes import REPOSITORY
from tests.support.promises import promise
from tests.support.waiting import wait_for

QUEUED_SECONDS = SOON["QUEUED_SECONDS"]


@promise("nothing-lost")
def test_the_brokers_database_is_flushed(
    project: Project, start_redis: StartRedis, scale: Scale
) -> None:
    ledger = start_redis()
    # Neither fetches more than it can run, or one would have three of the four below.
    apart = project.with_settings(
        reliable={**SOON, "REDIS_URL": ledger.url()}, celery={"worker_prefetch_multiplier": 1}
    )
    workers = list(apart.start_workers("one", "two").values())
    running = [apart.send("gate", "gate") for _ in range(4)]
    for result in running:
        project.effects.run_of(result.id)
    queued = [apart.send("work", 0) for _ in range(scale.of(full=500, small=60))]
    client = project.redis.client()
    client.flushdb()
    flushed_at = project.effects.now()
    project.effects.open_gate("gate")
    records = ledger.client()
    wait_for(lambda: not records.keys(RECORD + "*"), 4 * QUEUED_SECONDS, "all settled")
    print(
        "seconds to the last settlement after FLUSHDB:",
        round(project.effects.now() - flushed_at, 1),
    )
    assert_each_ran_once(project.effects, [result.id for result in running + queued])
    assert all(worker.is_running for worker in workers)


@promise("nothing-lost")
def test_a_publisher_is_killed(soon: Project, scale: Scale) -> None:
    soon.start_worker("one")
    dice = random.Random(11)
    for _ in range(scale.of(full=10, small=2)):
        soon.effects.client.delete("published")
        wanted = dice.randrange(20, scale.of(full=900, small=150))
        publisher = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.publishing", "1000"],
            cwd=REPOSITORY,
            env=soon.environ("", {}),
        )
        try:
            wait_for(lambda n=wanted: soon.effects.client.llen("published") >= n, 30, "published")
        finally:
            publisher.kill()
            publisher.wait()
        published = [one.decode() for one in soon.effects.client.lrange("published", 0, -1)]
        assert wanted <= len(published) < 1000
        wait_until_settled(soon.redis, 4 * QUEUED_SECONDS)
        assert_each_ran_once(soon.effects, published)


@promise("nothing-lost")
def test_a_queue_is_deleted_and_nothing_is_sent_twice_to_one_that_is_not(soon: Project) -> None:
    client = soon.redis.client()
    gone = [soon.send("work", 0, queue="gone") for _ in range(5)]
    kept = [soon.send("work", 0) for _ in range(20)]
    client.delete("gone")
    # Sweeps, and consumes from a third queue.
    soon.start_worker("sweeps", options=("-Q", "third"))
    wait_for(lambda: client.llen("gone") == 5, 3 * QUEUED_SECONDS, "sent again")
    looked_at = "{reliable:0}:due"
    now = soon.effects.now()
    wait_for(
        lambda: all(client.zscore(looked_at, r.id) / 1000 > now for r in kept), 20, "looked at"
    )
    assert client.llen("celery") == 20
    soon.start_worker("works", options=("-Q", "celery,gone"))
    wait_until_settled(soon.redis, 20)
    assert_each_ran_once(soon.effects, [result.id for result in gone + kept])
