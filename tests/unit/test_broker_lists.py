"""Brokers that several URLs name: which transport a connection has, and where messages are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.broker import sending_transport_for, transport_for
from celery_reliable.results import results_server_of

A, B, C = (f"sentinel://h{n}:26379/1" for n in "123")
MASTER = {"master_name": "mymaster"}
MakeApp = Callable[..., Celery]


class TheirConnection(Connection):
    """What a project may have in the place of kombu's."""


class TheirAMQP(AMQP):
    """What a project may have in the place of Celery's."""

    Connection = TheirConnection


def work() -> None:
    """What no test here runs."""


@pytest.fixture
def make_app() -> Iterator[MakeApp]:
    """Make an app with a reliable task; nothing is connected."""
    made = []

    def make(broker: str, *, amqp: Any = None, redis_url: str | None = None, **conf: Any) -> Celery:
        app = Celery("listed", broker=broker, amqp=amqp, set_as_current=False)
        app.conf.update(reliable={"REDIS_URL": redis_url} if redis_url else {}, **conf)
        app.task(name="listed.work", base=ReliableTask, shared=False)(work)
        app.finalize()
        made.append(app)
        return app

    yield make
    for app in made:
        reliable_of(app).close()
        app.close()


@pytest.mark.parametrize("amqp", [None, TheirAMQP])
@pytest.mark.parametrize(
    "urls",
    [
        ["sentinel://h1", "sentinel://h2"],
        ["redis://h1", "redis://h2"],
        ["redis://h1", "rediss://h2?ssl_cert_reqs=required"],
    ],
)
def test_a_connection_that_goes_on_to_the_next_broker_keeps_our_transport(
    make_app: MakeApp, amqp: Any, urls: list[str]
) -> None:
    app = make_app(";".join(urls), amqp=amqp, redis_url="redis://ledger")
    path = transport_for(urls[0].partition("://")[0])
    with app.connection_for_read(transport=path) as connection:
        for url in (urls[1], urls[0], urls[1]):
            connection.maybe_switch_next()
            assert connection.transport_cls == path
            assert connection.hostname == url.partition("://")[2].partition("?")[0]
        assert isinstance(connection, TheirConnection if amqp else Connection)
        assert connection.clone().transport_cls == path


def test_producers_behind_several_sentinels_keep_what_records_with_sending(
    make_app: MakeApp,
) -> None:
    app = make_app(f"{A};{B}", broker_transport_options=MASTER)
    # The pool makes its connections by itself.
    with app.amqp.producer_pool.connections.new() as connection:
        assert connection.transport_cls == sending_transport_for("sentinel")
        for _ in range(3):
            connection.maybe_switch_next()
            assert connection.transport_cls == sending_transport_for("sentinel")
            assert (connection.alt, connection.virtual_host) == ([A, B], "1")


@pytest.mark.parametrize(
    ("broker", "ledger"),
    [
        (A, None),
        (f"{A};{B};{C}", None),
        (f"{A};{B}", f"{B};{A}"),
    ],
)
def test_queues_and_ledger_are_in_one_database_behind_the_same_sentinels(
    make_app: MakeApp, broker: str, ledger: str | None
) -> None:
    app = make_app(broker, redis_url=ledger, broker_transport_options=MASTER)
    reliable = reliable_of(app)
    assert reliable.queues_at
    assert reliable.is_delivered_from_ledger
    assert "p@" not in reliable.queues_at
    for name in ("sentinel", "celery_reliable.transport:SentinelTransport"):
        app.conf.broker_transport = name
        assert reliable.is_delivered_from_ledger


RESULTS = {"result_backend_transport_options": MASTER, "broker_transport_options": MASTER}


@pytest.mark.parametrize(
    ("broker", "results", "is_same"),
    [
        (A, "sentinel://h1:26379/2", True),
        (f"{A};{B}", f"{B};{A}", True),
        (f"{A};{B}", A, False),
        ("sentinel://u:p@h1:1", "sentinel://h1:1", False),
        (A, "redis://h1:26379/1", False),
    ],
)
def test_results_are_on_the_ledgers_server_behind_the_same_sentinels(
    make_app: MakeApp, broker: str, results: str, is_same: bool
) -> None:
    app = make_app(broker, result_backend=results, **RESULTS)
    server = results_server_of(app.backend)
    assert server is not None
    assert (server == reliable_of(app).connector().server) == is_same
    app.conf.result_backend_transport_options = {"master_name": "another"}
    is_apart = results_server_of(app.backend) != reliable_of(app).connector().server
    assert is_apart or results.startswith("redis")


@pytest.mark.parametrize(
    ("broker", "ledger", "conf"),
    [
        (A, "redis://h1:26379/1", {}),
        (A, B, {}),
        (A, "sentinel://h1:26379/2", {}),
        # kombu takes the database of one URL, and of another when it goes on to that.
        ("sentinel://h1;sentinel://h2/1", None, {}),
        ("sentinel://h1;redis://h2", None, {}),
        (A, None, {"broker_transport": "redis"}),
        (A, None, {"broker_transport_options": {**MASTER, "credential_provider": object()}}),
        # Which of them is in use, nobody knows.
        ("redis://h1;redis://h2", "redis://h1", {}),
    ],
)
def test_where_nobody_can_tell_they_are_in_two(
    make_app: MakeApp, broker: str, ledger: str | None, conf: dict[str, Any]
) -> None:
    app = make_app(broker, redis_url=ledger, **{"broker_transport_options": MASTER, **conf})
    assert not reliable_of(app).queues_at
    assert not reliable_of(app).is_delivered_from_ledger
