"""Two apps in one process, one of them without the package: it sees nothing of the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.contrib.testing.worker import start_worker
from celery.signals import worker_shutdown, worker_shutting_down
from celery.worker.control import Panel
from kombu import Connection

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.context import current_worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def _work(*args: Any) -> str:
    return "worked"


@pytest.fixture
def apps(redis_server: RedisServer) -> Iterator[tuple[Celery, Celery]]:
    """An app with a reliable task, and one without; broker and results are on one server."""
    made = [
        Celery(
            name,
            broker=redis_server.url(),
            backend=redis_server.url(1),
            set_as_current=False,
            fixups=(),
        )
        for name in ("ours", "other")
    ]
    ours, other = made
    ours.task(shared=False, base=ReliableTask, name="beside.work")(_work)
    other.task(shared=False, name="beside.plain")(_work)
    ours.finalize()
    yield ours, other
    for app in made:
        # The server is about to go: a result that is collected later has nobody to tell.
        app.backend.remove_pending_result = lambda result: None
        reliable_of(app).close()
        app.close()


def test_an_app_without_the_package_publishes_as_ever(
    apps: tuple[Celery, Celery], redis_server: RedisServer
) -> None:
    ours, other = apps
    sent = [other.send_task("beside.plain"), other.tasks["beside.plain"].delay()]
    assert type(other.amqp) is AMQP
    with redis_server.client() as client:
        assert not client.keys("{reliable*")
        headers = [json.loads(raw)["headers"] for raw in client.lrange("celery", 0, -1)]
    assert {one["id"] for one in headers} == {one.id for one in sent}
    assert not any("reliable" in one for one in headers)
    with other.producer_pool.acquire() as producer, ours.producer_pool.acquire() as own:
        assert type(producer.channel).__module__ == "kombu.transport.redis"
        assert type(own.channel).__module__.startswith("celery_reliable.")


def test_a_worker_leaves_nothing_behind_and_others_alone(apps: tuple[Celery, Celery]) -> None:
    ours, other = apps
    other.finalize()
    revoke, aliases = Panel.data["revoke"], dict(Connection.resolve_aliases)

    def is_untouched() -> bool:
        return Panel.data["revoke"] is revoke and other.conf.broker_transport is None

    with start_worker(ours, pool="solo", perform_ping_check=False, shutdown_timeout=30) as worker:
        assert ours.conf.broker_transport == "celery_reliable.transport:Transport"
        assert is_untouched()
        with other.connection_for_read() as connection, connection.channel() as channel:
            assert type(channel).__module__ == "kombu.transport.redis"
            assert "retry_on_error" not in channel.pool.connection_kwargs
        assert ours.send_task("beside.work").get(timeout=20) == "worked"
        # Other workers of the process come and go.
        worker_shutting_down.send(sender="other@host", sig="SIGTERM", how="Warm", exitcode=0)
        worker_shutdown.send(sender=other)
        # The command is ours where the worker is.
        ours.send_task("beside.work", countdown=3600, task_id="later")
        ledger = reliable_of(ours).ledger
        assert ledger.find("later") is not None
        other.control.broadcast("revoke", {"task_id": "later"}, destination=[worker.hostname])
        wait_for(lambda: ledger.find("later") is None, 20, "the record has gone")
        assert [lease.is_dead for lease in ledger.workers.leases()] == [False]
    assert is_untouched()
    assert (ledger.workers.leases(), current_worker()) == ([], None)
    assert ours.conf.broker_transport is None
    assert dict(Connection.resolve_aliases) == aliases
