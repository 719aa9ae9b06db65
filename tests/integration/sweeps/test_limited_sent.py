"""What becomes of limited tasks whose moment has come, without any worker."""

from __future__ import annotations

import json
from typing import Any

from celery_reliable.app import reliable_of
from celery_reliable.ledger.answers import ParkedUntil
from celery_reliable.model import Rate
from celery_reliable.recovery import Pacing, Sweeper
from tests.integration.conftest import Project
from tests.integration.figures import DUE, RECORD
from tests.integration.project.limited import add_tasks
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

NAME = "project.limited"
#: Far enough apart that a busy machine does not come later than all of them.
RATE = Rate(NAME, 150_000)


def parked(project: Project, ledger_server: RedisServer, count: int) -> list[str]:
    """Ids of limited tasks that waited for their moments, which have come; the first first."""
    add_tasks(project.app)
    paces = reliable_of(project.app).ledger.paces
    ids = [project.send("limited").id for _ in range(count + 1)]
    client: Any = ledger_server.client()
    # A worker has taken each, asked for its moment, and dropped the message.
    project.redis.client().delete("celery")
    waiting = []
    for one in ids:
        epoch = client.hget(RECORD + one, "epoch").decode()
        if isinstance(paces.reserve(one, NAME, RATE, epoch=epoch), ParkedUntil):
            waiting.append(one)
    assert waiting
    latest = client.zscore(DUE, waiting[-1])

    def has_come() -> bool:
        seconds, micros = client.time()
        return bool(seconds * 1000 + micros // 1000 > latest)

    wait_for(has_come, 10, "the last moment has come")
    return waiting


def test_they_go_first_in_the_order_of_their_moments_and_in_a_few_round_trips(
    project: Project, sweeper: Sweeper
) -> None:
    waiting = parked(project, project.redis, 30)
    others = [project.send("work", 0).id for _ in range(10)]
    pacing = Pacing(project.app, sweeper.ledger, sweeper.sending)
    client: Any = project.redis.client()
    client.config_resetstat()

    pacing.turn()

    # One after the other, each would be two at least.
    assert client.info("stats")["total_reads_processed"] < len(waiting)
    # Workers take from the right.
    queue = [json.loads(one)["headers"]["id"] for one in client.lrange("celery", 0, -1)]
    assert queue[::-1] == waiting + others
    assert {client.hget(RECORD + one, "state") for one in waiting} == {b"queued"}


def test_where_the_broker_is_away_the_next_pass_sends_them(
    apart: Project, ledger_server: RedisServer
) -> None:
    waiting = parked(apart, ledger_server, 3)
    client: Any = ledger_server.client()
    sweeper = Sweeper(apart.app)
    apart.redis.stop()

    Pacing(apart.app, sweeper.ledger, sweeper.sending).turn()

    assert {client.hget(RECORD + one, "unsent") for one in waiting} == {b"1"}
    apart.redis.start()
    sweeper.run_if_due()
    wait_for(
        lambda: sweeper.run_if_due() and apart.redis.client().llen("celery") == len(waiting),
        10,
        "they are sent",
    )
    sweeper.close()
