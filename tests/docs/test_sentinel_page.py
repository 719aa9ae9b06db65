"""`docs/recipes/sentinel.rst`: by its settings, broker, ledger and results are behind the same
Sentinels.  What a failover does is shown by `tests/promises/limits/test_failover_loses.py`.
"""

from __future__ import annotations

from pathlib import Path

from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.results import results_server_of
from tests.conftest import StartRedis
from tests.docs.blocks import Page
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel, start_replica

PAGES = ("recipes/sentinel.rst",)
PAGE = Page(*PAGES)


def work() -> None:
    """What nobody runs here."""


def test_its_settings_are_those_of_one_server(
    tmp_path: Path, redis_server: RedisServer, start_redis: StartRedis
) -> None:
    start_replica(redis_server, start_redis)
    with Sentinel(tmp_path, redis_server) as sentinel:
        source = PAGE.block("sentinels =", "python").text
        for name, host in (("1", "127.0.0.1"), ("2", "localhost"), ("3", "127.0.0.1")):
            source = source.replace(f"sentinel-{name}:26379", f"{host}:{sentinel.port}")
        app = Celery("proj", set_as_current=False)
        exec(source.replace("mymaster", sentinel.name), {"app": app})
        task = app.task(name="proj.work", base=ReliableTask, shared=False)(work)

        sent = task.delay()

        reliable = reliable_of(app)
        with redis_server.client() as client:
            assert client.llen("celery") == 1
            assert client.exists("{reliable:0}:task:" + sent.id)
        assert reliable.queues_at
        assert reliable.is_delivered_from_ledger
        assert results_server_of(app.backend) == reliable.connector().server
        reliable.close()
        app.close()
    assert PAGE.left() == []
