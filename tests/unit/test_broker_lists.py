"""Brokers that several URLs name: which transport a connection has."""

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
@pytest.mark.parametrize("path_for", [transport_for, sending_transport_for])
@pytest.mark.parametrize(
    "urls",
    [
        ["sentinel://h1", "sentinel://h2"],
        ["redis://h1", "redis://h2"],
        ["redis://h1", "rediss://h2?ssl_cert_reqs=required"],
    ],
)
def test_a_connection_that_goes_on_to_the_next_broker_keeps_our_transport(
    make_app: MakeApp, amqp: Any, path_for: Callable[[str], str], urls: list[str]
) -> None:
    app = make_app(";".join(urls), amqp=amqp, redis_url="redis://ledger")
    path = path_for(urls[0].partition("://")[0])
    with app.connection_for_read(transport=path) as connection:
        for url in (urls[1], urls[0], urls[1]):
            connection.maybe_switch_next()
            assert connection.transport_cls == path
            assert connection.hostname == url.partition("://")[2].partition("?")[0]
        assert isinstance(connection, TheirConnection if amqp else Connection)
        assert connection.clone().transport_cls == path


@pytest.mark.parametrize("given", [None, "tests.unit.test_broker_lists:TheirTransport"])
def test_other_transports_change_with_the_url_as_in_kombu(
    make_app: MakeApp, given: str | None
) -> None:
    app = make_app("redis://h1;redis://h2", redis_url="redis://ledger")
    with app.connection_for_read(transport=given) as connection:
        connection.maybe_switch_next()
        assert connection.transport_cls == "redis"


def test_our_transport_is_left_for_a_broker_that_it_cannot_serve(make_app: MakeApp) -> None:
    app = make_app("redis://h1;amqp://h2", redis_url="redis://ledger")
    with app.connection_for_read(transport=transport_for("redis")) as connection:
        connection.maybe_switch_next()
        assert connection.transport_cls == "amqp"


class TheirTransport:
    """What a project may have in the place of kombu's; nothing is ever sent through it."""

    can_parse_url = False
