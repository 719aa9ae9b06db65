"""Two apps in one process, one of them without the package: it sees nothing of the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

Make = Callable[..., Celery]


@pytest.fixture
def make(redis_server: RedisServer) -> Iterator[Make]:
    """Make an app whose broker and results are on this test's server."""
    apps: list[Celery] = []

    def one(name: str, **options: Any) -> Celery:
        app = Celery(
            name,
            broker=redis_server.url(),
            backend=redis_server.url(1),
            set_as_current=False,
            fixups=(),
            **options,
        )
        app.conf.broker_connection_retry_on_startup = True
        apps.append(app)
        return app

    yield one
    for app in apps:
        # The server is about to go: a result that is collected later has nobody to tell.
        app.backend.remove_pending_result = lambda result: None
        reliable_of(app).close()
        app.close()


def _work(*args: Any) -> str:
    return "worked"


def _ours(app: Celery) -> Celery:
    """Declare a task of ours in an app; it is made when the app is finalized."""
    app.task(shared=False, base=ReliableTask, name="beside.work")(_work)
    return app


def _keys(server: RedisServer) -> set[str]:
    with server.client() as client:
        return {key.decode() for key in client.scan_iter("*")}


def test_an_app_without_the_package_publishes_as_ever(
    make: Make, redis_server: RedisServer
) -> None:
    ours, other = _ours(make("ours")), make("other")
    ours.finalize()
    other.task(shared=False, name="beside.plain")(_work)
    sent = other.send_task("beside.plain")
    assert type(other.amqp) is AMQP
    # Its tasks are made when it wants them, and not when it sends.
    assert not other.finalized
    assert not any(key.startswith("{reliable") for key in _keys(redis_server))
    with redis_server.client() as client:
        (raw,) = client.lrange("celery", 0, -1)
    headers = json.loads(raw)["headers"]
    assert (headers["id"], headers.get("reliable")) == (sent.id, None)
    with other.producer_pool.acquire() as producer, ours.producer_pool.acquire() as own:
        assert type(producer.channel).__module__ == "kombu.transport.redis"
        assert type(own.channel).__module__.startswith("celery_reliable.")
    # It goes on like that when it has made its tasks.
    other.tasks["beside.plain"].delay()
    assert "send_task_message" in vars(other.amqp)
    assert type(other.amqp) is AMQP
    assert not any(key.startswith("{reliable") for key in _keys(redis_server))


def test_a_worker_leaves_nothing_behind_and_others_alone(make: Make) -> None:
    ours, other = _ours(make("ours")), make("other")
    ours.finalize()
    other.finalize()
    revoke, aliases = Panel.data["revoke"], dict(Connection.resolve_aliases)

    def is_untouched() -> bool:
        return Panel.data["revoke"] is revoke and other.conf.broker_transport is None

    with start_worker(ours, pool="solo", perform_ping_check=False, shutdown_timeout=30) as worker:
        assert ours.conf.broker_transport == "celery_reliable.transport:Transport"
        assert is_untouched()
        with other.connection_for_read() as connection, connection.channel() as channel:
            pool = channel.pool
            assert type(channel).__module__ == "kombu.transport.redis"
            assert "retry_on_error" not in pool.connection_kwargs
        assert ours.send_task("beside.work").get(timeout=20) == "worked"
        # This one has its unacked hash's connections for itself.
        consumer = worker.consumer.task_consumer.channel
        assert consumer.pool is not consumer.qos.unacked.client.connection_pool
        assert consumer.pool.max_connections == channel.max_connections
        # Other workers of the process come and go.
        worker_shutting_down.send(sender="other@host", sig="SIGTERM", how="Warm", exitcode=0)
        worker_shutdown.send(sender=other)
        # The command is ours where the worker is.
        ours.send_task("beside.work", countdown=3600, task_id="later")
        ledger = reliable_of(ours).ledger
        assert ledger.find("later") is not None
        other.control.broadcast("revoke", {"task_id": "later"}, destination=[worker.hostname])
        wait_for(lambda: ledger.find("later") is None, 20, "the record has gone")
        assert not consumer.qos.unacked.is_leaving
        assert [lease.is_dead for lease in ledger.workers.leases()] == [False]
    assert is_untouched()
    assert ours.conf.broker_transport is None
    assert dict(Connection.resolve_aliases) == aliases
