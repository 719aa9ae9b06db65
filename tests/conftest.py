"""Servers for all tests: real ones, on loopback, ended whatever happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from proof.traces import recording
from tests.support.effects import Effects
from tests.support.forking import FORK_SECONDS, Working
from tests.support.processes import CeleryProcess
from tests.support.proxy import RedisProxy
from tests.support.rabbit_server import RabbitServer, why_no_rabbit
from tests.support.redis_server import RedisServer
from tests.support.serving import ended
from tests.support.traces import ACCEPTED, check_servers, check_traces, is_traced

T = TypeVar("T")

StartRedis = Callable[..., RedisServer]

LOG_LINES = 60

PROCESSES: pytest.StashKey[list[CeleryProcess]] = pytest.StashKey()


@dataclass(frozen=True)
class Scale:
    """How large the tests are that give figures: small, or in full with `--full`."""

    is_full: bool

    def of(self, *, full: T, small: T) -> T:
        """Choose the number for this run."""
        return full if self.is_full else small


#: Options that are on or off, and what each does; some are for the workers of xdist and Celery too.
FLAGS = {
    "full": "run the tests that give figures at full scale (minutes); -s shows the figures",
    "apart": "let no two steps be one, as if ledger, queues and results were apart",
    "from-scratch": "let each Celery process import all itself, as users' do",
    "screenshots": "tests/browser/test_pictures.py makes the pictures of the docs anew",
    "traces": "record each call of a script, and check on the model that it was allowed",
}
IN_ENVIRONMENT = ("apart", "from_scratch")


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, text in FLAGS.items():
        parser.addoption(f"--{name}", action="store_true", help=text)
    storm = "how long the storm of tests/integration/test_chaos.py lasts (one seed)"
    parser.addoption("--storm-minutes", type=float, help=storm)
    worlds = "how many random worlds of tests/ledger/driver are run"
    parser.addoption("--worlds", type=int, default=40, help=worlds)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what the tests have counted: states, calls."""
    counted = [
        (name, value)
        for report in terminalreporter.stats.get("", [])
        if report.when == "teardown"
        for name, value in report.user_properties
    ]
    told = sorted(f"{name}: {value}" for name, value in counted if name == "states explored")
    accepted = [value for name, value in counted if name == ACCEPTED]
    if accepted:
        told.append(f"{ACCEPTED}: {sum(accepted)}, of {len(accepted)} tests")
    if told:
        terminalreporter.section("counted")
        for line in told:
            terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    # A `timeout` or a CI runner ends us by SIGTERM, which alone would leave every worker behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # What a shell starts in the background ignores Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in IN_ENVIRONMENT:
        if config.getoption(name):
            os.environ[f"TESTS_{name.upper()}"] = "yes"
    if config.getoption("traces"):
        recording.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the end of each process's log to the report of a test that failed."""
    report = yield
    if report.failed:
        for process in item.stash.get(PROCESSES, []):
            tail = process.log_text(last_lines=LOG_LINES)
            report.sections.append((f"log of {process.name} ({process.pid})", tail))
    return report


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> Scale:
    """The scale that was asked for."""
    return Scale(pytestconfig.getoption("full"))


@pytest.fixture
def tracing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Record what this test and its processes ask of ledgers, if its module is one of those."""
    # The workers of a fleet record whatever they do, so that each of its tests can be checked.
    is_asked = is_traced(request.path) or "shared" in request.fixturenames
    if not is_asked or recording.is_recording():
        yield
        return
    recording.start()
    yield
    recording.stop()


@pytest.fixture
def start_redis(
    tracing: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[StartRedis]:
    """Start another server of this test's own: `start_redis({"maxmemory-policy": ...})`; *binary*
    is that of another server than the tests' own.
    """
    servers: list[RedisServer] = []

    def make(
        options: Mapping[str, str] | None = None, *, binary: Path | None = None
    ) -> RedisServer:
        servers.append(RedisServer(tmp_path_factory.mktemp("redis"), options, binary=binary))
        return servers[-1]

    with ended(make) as start:
        yield start
        if recording.is_recording() and request.node.get_closest_marker("untraced") is None:
            request.node.user_properties.append((ACCEPTED, check_servers(servers)))


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    """A server of this test's own, with an append-only file, that it may stop or kill."""
    return start_redis()


@pytest.fixture
def start_rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RabbitServer]]:
    """Start a RabbitMQ of this test's own: `start_rabbit({"consumer_timeout": "4000"})`.

    The test is skipped where none is installed.
    """
    if reason := why_no_rabbit():
        pytest.skip(reason)

    def make(settings: Mapping[str, str] | None = None) -> RabbitServer:
        return RabbitServer(tmp_path_factory.mktemp("rabbit"), settings)

    with ended(make) as start:
        yield start


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[RedisProxy]:
    """A proxy in front of `redis_server` that can lose requests, replies or the network."""
    with RedisProxy(redis_server.port) as running:
        yield running


@pytest.fixture(scope="session")
def _shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("shared"), {"appendonly": "no"}) as server:
        yield server


@pytest.fixture
def shared_redis(
    tracing: None, _shared_server: RedisServer, request: pytest.FixtureRequest
) -> Iterator[redis.Redis]:
    """A client of database 0 of a server that all tests share, empty at the start of each.

    For tests of the ledger and the like, which neither stop the server nor fill it for others.
    """
    with _shared_server.client() as client:
        client.flushdb()
        yield client
        if recording.is_recording() and request.node.get_closest_marker("untraced") is None:
            request.node.user_properties.append((ACCEPTED, check_traces(client).accepted.total()))


@pytest.fixture
def effects(_shared_server: RedisServer) -> Iterator[Effects]:
    """What the project's tasks did, kept apart from broker and ledger."""
    with _shared_server.client(db=15) as client:
        found = Effects(client)
        found.clear()
        yield found


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """Where this test's processes write their logs."""
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory


@pytest.fixture
def working() -> Iterator[Callable[[Callable[[Working], None]], Working]]:
    """Start a thread that does this inside the gate, and wait for its begin."""
    started: list[Working] = []

    def start(step: Callable[[Working], None]) -> Working:
        thread = Working(step)
        started.append(thread)
        thread.start()
        assert thread.has_begun.wait(FORK_SECONDS)
        return thread

    yield start
    for thread in started:
        thread.ask_to_stop()
        assert thread.join(FORK_SECONDS)
