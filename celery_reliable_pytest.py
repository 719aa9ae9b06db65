"""The pytest plugin: fixtures for tests of tasks that must not be lost.

pytest loads it wherever celery-reliable is installed.  So it is no part of the package, and imports
pytest alone: to import Celery takes a second.  Nothing is started, and nothing of the package, of
Celery or of Django is imported, before a test asks for one of these fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from celery_reliable.contrib.testing import PrivateLedger

__all__ = [
    "assert_settled_once",
    "dead_letters",
    "kill_worker",
    "reliable_app",
    "reliable_ledger",
    "reliable_redis_url",
    "run_sweep",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what pytest's configuration may say of the package."""
    parser.addini(
        "reliable_app", "the Celery app, as for `celery -A`: what reliable_ledger is a ledger for"
    )
    parser.addini(
        "reliable_redis_url",
        "an empty database of a Redis, for reliable_ledger; without it a server is started",
    )


@pytest.fixture(scope="session")
def reliable_redis_url(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of an empty database of a real Redis, for this process of pytest alone.

    It is that of ``reliable_redis_url`` in pytest's configuration, else of the environment's
    ``REDIS_URL`` if that is empty, else of a server that is started for it.  Fails where there is
    none.
    """
    from celery_reliable.contrib.testing import NoRedis, redis_database

    try:
        with redis_database(
            str(pytestconfig.getini("reliable_redis_url") or ""), tmp_path_factory.mktemp("redis")
        ) as url:
            yield url
    except NoRedis as exc:
        pytest.fail(str(exc), pytrace=False)


@pytest.fixture
def reliable_app(request: pytest.FixtureRequest) -> Any:
    """The Celery app that the other fixtures are about; override it to name another.

    It is that of ``reliable_app`` in pytest's configuration, else the fixture ``celery_app`` of
    Celery's own plugin, where that is in use.
    """
    path = str(request.config.getini("reliable_app") or "")
    if path:
        from celery.app.utils import find_app

        return find_app(path)
    try:
        return request.getfixturevalue("celery_app")
    except pytest.FixtureLookupError:
        pytest.fail(
            "Which app? Say `reliable_app = proj.celery:app` in pytest's configuration, or "
            "override the fixture reliable_app.",
            pytrace=False,
        )


@pytest.fixture
def reliable_ledger(
    request: pytest.FixtureRequest,
    reliable_app: Any,
    reliable_redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[PrivateLedger]:
    """A ledger of this test alone, on a real Redis, with the app's queues and results beside it.

    The app publishes and reads there until the test ends.  Its times are short: a lease lasts two
    seconds.  What was started is ended with the test.
    """
    from celery_reliable.contrib.testing import PrivateLedger

    # Celery reads these before any setting.
    for name in ("BROKER_URL", "BROKER_READ_URL", "BROKER_WRITE_URL", "RESULT_BACKEND"):
        monkeypatch.delenv(f"CELERY_{name}", raising=False)
    path = str(request.config.getini("reliable_app") or "")
    with PrivateLedger(reliable_app, reliable_redis_url, tmp_path, app_path=path) as ledger:
        yield ledger


@pytest.fixture
def kill_worker(reliable_ledger: PrivateLedger) -> Callable[..., Any]:
    """``kill_worker(task.s(7))``: let a real worker run it, SIGKILL the worker, return the result.

    See `PrivateLedger.kill_worker`.
    """
    return reliable_ledger.kill_worker


@pytest.fixture
def run_sweep(reliable_ledger: PrivateLedger) -> Callable[..., Any]:
    """``run_sweep()``: recover what is lost, now and in this process.

    See `PrivateLedger.run_sweep`.
    """
    return reliable_ledger.run_sweep


@pytest.fixture
def assert_settled_once(reliable_ledger: PrivateLedger) -> Callable[..., Any]:
    """``assert_settled_once(result)``: wait until the task has ended, as it should.

    See `PrivateLedger.assert_settled_once`.
    """
    return reliable_ledger.assert_settled_once


@pytest.fixture
def dead_letters(reliable_ledger: PrivateLedger) -> Any:
    """The dead letters of this test's ledger: a `celery_reliable.operations.DeadLetters`."""
    return reliable_ledger.desk.letters
