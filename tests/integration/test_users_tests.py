"""The users' own tests, by Celery's pytest plugin: on a broker in memory, and on a real Redis."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.support.processes import run_python
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.full

TESTS = """
    import logging
    import pytest
    import redis
    from celery.contrib.testing.worker import start_worker
    from celery_reliable import ConfigurationError, ReliableTask, signals
    from celery_reliable.app import reliable_of
    from celery_reliable.context import current_worker

    pytest_plugins = ("celery.contrib.pytest",)
    IS_PROTECTED = {is_protected}

    @pytest.fixture(scope="session")
    def celery_config():
        return {{"broker_url": "{broker}", "result_backend": "{backend}"}}

    @pytest.fixture
    def add(celery_app):
        @celery_app.task(base=ReliableTask, bind=True, object_id="a", unique="queued")
        def add(self, a, b):
            return [a + b, self.attempt]
        return add

    def test_a_worker_in_this_process(celery_app, add, celery_worker):
        celery_worker.reload()
        assert add.delay(4, 4).get(timeout=20) == [8, 1]
        assert add.apply_async((4, 4), countdown=0.01).get(timeout=20) == [8, 1]

    def test_a_worker_that_has_ended_leaves_nothing_in_the_process(celery_app, add):
        with start_worker(celery_app, perform_ping_check=False):
            assert add.delay(1, 1).get(timeout=20) == [2, 1]
            assert (current_worker() is not None) is IS_PROTECTED
        assert current_worker() is None
        if IS_PROTECTED:
            assert not redis.Redis.from_url("{broker}").keys("{{reliable:0}}:worker:*")

    def test_one_warning(celery_app, add, caplog):
        with caplog.at_level(logging.WARNING):
            add.delay(1, 1)
            add.delay(2, 1)
        told = [r.getMessage() for r in caplog.records if "lives in one process" in r.getMessage()]
        assert len(told) == (0 if IS_PROTECTED else 1), told

    def test_no_worker_at_all(celery_app, add):
        assert add.apply((1, 2)).get() == [3, 1]
        assert add(1, 2) == [3, 1]
        celery_app.conf.task_always_eager = True
        assert add.delay(1, 2).get() == [3, 1]
"""


def run(folder: Path, broker: str, backend: str, is_protected: bool) -> None:
    """Run a user's tests."""
    source = textwrap.dedent(TESTS).format(
        broker=broker, backend=backend, is_protected=is_protected
    )
    (folder / "test_users.py").write_text(source)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_users.py")
    # What these tests are told by their environment is not the users'.
    run_python(*words, folder=folder, environ={"PYTEST_ADDOPTS": ""})


def test_on_a_broker_in_memory(tmp_path: Path) -> None:
    run(tmp_path, "memory://", "cache+memory://", False)


def test_on_a_real_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    run(tmp_path, redis_server.url(), redis_server.url(1), True)

    assert not redis_server.client().keys("{reliable:0}:worker:*")
