"""The servers of a world: one Redis behind networks, or a master, a replica and a Sentinel.

Both say since when what was written may be gone, and when the server that had it stood still.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from proof.soak.history import step_end, strays
from proof.soak.patience import patiently
from proof.soak.suffix import LONGEST_SECONDS, TRIES, Lost, earliest, safe_moments
from proof.soak.table import ONE
from tests.support.faketime import SteppingServer, faketime_library
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel, start_replica
from tests.support.waiting import wait_for

__all__ = ["OneServer", "Sentinels", "Servers", "make"]

#: A file that is written anew has no place at which it could be cut.
_APPENDED = {"auto-aof-rewrite-percentage": "0"}
_SERVER_SECONDS = 60.0
#: Longer than a busy machine keeps a server from answering: by itself it fails over to nobody.
_SENTINEL_PATIENCE_MS = 60_000


class Servers(ABC):
    """What a world's workers and publisher are connected to."""

    def __init__(self) -> None:
        self._ends = contextlib.ExitStack()

    def close(self) -> None:
        """End all of them."""
        self._ends.close()

    @property
    @abstractmethod
    def master(self) -> RedisServer:
        """The server that has broker and ledger by now."""

    @abstractmethod
    def settings_of(self, client: str) -> dict[str, Any]:
        """What a process of this name is told, of the project's settings."""

    @abstractmethod
    def databases(self) -> list[redis.Redis]:
        """All that may hold a key of the world."""

    @abstractmethod
    def publishing_results(self) -> list[RedisServer]:
        """The servers on which results are published."""

    def set_off(self, seconds: int) -> None:
        """Set the clock of the ledger's server.  Raises NotImplementedError where it has none."""
        raise NotImplementedError

    def strayed(self) -> list[str]:
        """What was wrong with claims at any time, where the ledger's server has its history."""
        return []

    def results(self) -> redis.Redis:
        """Where results are stored."""
        return self.databases()[-1]

    def _folder(self, folder: Path, name: str) -> Path:
        found = folder / name
        found.mkdir(parents=True)
        return found


class OneServer(Servers):
    """One server for all; each process has a network of its own before it."""

    def __init__(self, folder: Path, clients: tuple[str, ...]) -> None:
        super().__init__()
        where, library = self._folder(folder, "redis"), faketime_library()
        self.server: RedisServer = (
            SteppingServer(where, library, _APPENDED) if library else RedisServer(where, _APPENDED)
        )
        self.networks: dict[str, RedisProxy] = {}
        try:
            self._ends.enter_context(self.server)
            for name in clients:
                self.networks[name] = self._ends.enter_context(RedisProxy(self.server.port))
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> RedisServer:
        """The one."""
        return self.server

    def settings_of(self, client: str) -> dict[str, Any]:
        """Broker and results by the process's own network."""
        network = self.networks[client]
        return {"broker_url": network.url(), "result_url": network.url(1)}

    def databases(self) -> list[redis.Redis]:
        """Broker and ledger, and results."""
        return [self.server.client(), self.server.client(1)]

    def publishing_results(self) -> list[RedisServer]:
        """The one."""
        return [self.server]

    def set_off(self, seconds: int) -> None:
        """Set its clock, which needs libfaketime."""
        assert isinstance(self.server, SteppingServer)
        self.server.set_off(seconds)

    def strayed(self) -> list[str]:
        """By its append-only file: what it has lost is not in there."""
        return strays(self.server.directory)

    def lose_power(self, now: Callable[[], float], seconds: float) -> Lost:
        """Lose what was written within so many seconds, or a little more, and say when that was."""
        client = self.server.client()
        for left in reversed(range(TRIES)):
            moments, written = safe_moments(client, now, seconds)
            self.server.freeze()
            ended = now()
            safe = earliest(moments, ended) or moments[-1]
            if ended - safe.at <= LONGEST_SECONDS or not left:
                break
            self.server.thaw()
        self.server.kill()
        count = max(written - safe.size, 0)
        _cut(self.server.directory, count)
        self.server.start()
        self.server.wait_until_loaded()
        return Lost(safe.at, ended, count)


class Sentinels(Servers):
    """A master and its replica, of which a Sentinel tells; results are on a server apart."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._servers = [RedisServer(self._folder(folder, name)) for name in ("a", "b")]
        self._apart = RedisServer(self._folder(folder, "results"))
        try:
            for server in (*self._servers, self._apart):
                self._ends.enter_context(server)
            first, second = self._servers
            start_replica(first, lambda: second)
            where = self._folder(folder, "sentinel")
            sentinel = Sentinel(where, first, patience_ms=_SENTINEL_PATIENCE_MS)
            self.sentinel = self._ends.enter_context(sentinel)
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> RedisServer:
        """The one of which the Sentinel tells."""
        port = patiently(self.sentinel.master_port)
        return next(server for server in self._servers if server.port == port)

    def settings_of(self, client: str) -> dict[str, Any]:
        """The Sentinel for all, by two URLs: kombu goes on to the other when one leads nowhere."""
        return {
            "broker_url": f"{self.sentinel.url()};{self.sentinel.url('localhost')}",
            "result_url": self._apart.url(),
            "celery": {"broker_transport_options": self.sentinel.options},
        }

    def databases(self) -> list[redis.Redis]:
        """The master's, and that of the results."""
        return [self.master.client(), self._apart.client()]

    def publishing_results(self) -> list[RedisServer]:
        """The one apart."""
        return [self._apart]

    def lose_master(self, now: Callable[[], float], seconds: float) -> Lost:
        """Promote a replica that lags so many seconds, or a little more; return since when, and
        until when, what the old master was given is lost.
        """
        old = self.master
        new = next(server for server in self._servers if server is not old)
        replica = new.client()
        for left in reversed(range(TRIES)):
            began, size = self._let_lag(old, replica, now, seconds)
            old.freeze()
            ended = now()
            if ended - began <= LONGEST_SECONDS or not left:
                break
            old.thaw()
            patiently(lambda: replica.config_set("masterauth", ""))
        old.kill()
        patiently(lambda: replica.config_set("masterauth", ""))
        self.sentinel.fail_over()
        wait_for(lambda: _is_master(replica), _SERVER_SECONDS, "the replica is promoted")
        old.start()
        old.wait_until_loaded()
        follower = old.client()
        # Clients ask the Sentinel, which would do this too, some ten seconds later.
        patiently(lambda: follower.execute_command("REPLICAOF", "127.0.0.1", new.port))
        wait_for(lambda: self.master is new, _SERVER_SECONDS, "the Sentinel tells of it")
        self.wait_until_followed()
        return Lost(began, ended, size)

    def _let_lag(
        self, old: RedisServer, replica: redis.Redis, now: Callable[[], float], seconds: float
    ) -> tuple[float, int]:
        """Let the replica lag; return since when, and by how many bytes at least."""
        master = old.client()
        _wait_until_alike(master, replica)
        began = now()
        _wait_until_alike(master, replica)
        # The master does not take a password, so a replica that has one cannot connect.
        replica.config_set("masterauth", "wrong")
        master.execute_command("CLIENT", "KILL", "TYPE", "replica")
        wait_for(lambda: now() >= began + seconds, seconds + 30, "time to pass")
        return began, _offset(master, "master_repl_offset") - _offset(replica, "slave_repl_offset")

    def wait_until_followed(self) -> None:
        """Wait until the master has a replica that the next failover can promote."""
        client = self.master.client()
        wait_for(lambda: _replicas(client) == 1, _SERVER_SECONDS, "the old master follows")


def make(set_up: str, folder: Path, clients: tuple[str, ...]) -> Servers:
    """Start the servers of a set-up."""
    return OneServer(folder, clients) if set_up == ONE else Sentinels(folder)


def _cut(directory: Path, count: int) -> None:
    """Take so many bytes off the end of the append-only file, but for the step they begin in."""
    files = [directory / "appendonly.aof", *sorted(directory.glob("appendonlydir/*.incr.aof"))]
    last = [path for path in files if path.is_file()][-1]
    text = last.read_bytes()
    with last.open("r+b") as file:
        file.truncate(step_end(text, max(len(text) - count, 0)))


def _offset(client: redis.Redis, name: str) -> int:
    """How far a server's data have come."""
    return int(patiently(lambda: client.info("replication"))[name])


def _wait_until_alike(master: redis.Redis, replica: redis.Redis) -> None:
    offset = _offset(master, "master_repl_offset")
    wait_for(lambda: _offset(replica, "slave_repl_offset") >= offset, _SERVER_SECONDS, "it has all")


def _is_master(client: redis.Redis) -> bool:
    return bool(patiently(lambda: client.info("replication"))["role"] == "master")


def _replicas(client: redis.Redis) -> int:
    return int(patiently(lambda: client.info("replication"))["connected_slaves"])
