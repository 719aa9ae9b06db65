"""A real Sentinel of one's own that watches a Redis and its replicas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.redis_server import RedisServer, free_port, redis_binary
from tests.support.serving import Server, spawn
from tests.support.waiting import wait_for

KNOWS_SECONDS = 30.0


def start_replica(master: RedisServer, start_redis: Callable[..., RedisServer]) -> RedisServer:
    """Start a replica of a server, and wait until it has caught up."""
    server = start_redis()
    with server.client() as client:
        client.replicaof("127.0.0.1", master.port)
        wait_for(lambda: client.info("replication")["master_link_status"] == "up", 15, "it follows")
    return server


class Sentinel(Server):
    """One Sentinel, which alone may decide; `name` is what it calls the master.

    A master that has not answered for *patience_ms* is replaced by its replica.
    """

    name = "mymaster"
    log_name = "sentinel.log"

    def __init__(self, directory: Path, master: RedisServer, *, patience_ms: int = 1000) -> None:
        self.port = free_port()
        self.directory = directory
        self._config = directory / "sentinel.conf"
        self._config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {directory}\n"
            f"logfile {self.log_path}\n"
            f"sentinel monitor {self.name} 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds {self.name} {patience_ms}\n"
            f"sentinel failover-timeout {self.name} 5000\n"
        )

    def url(self, host: str = "127.0.0.1", db: int = 0) -> str:
        """Where Celery finds it, by one of its names; `options` go with it."""
        return f"sentinel://{host}:{self.port}/{db}"

    @property
    def options(self) -> dict[str, Any]:
        """Celery's `broker_transport_options`."""
        return {"master_name": self.name}

    def start(self) -> None:
        """Start it, and wait until it knows of a replica."""
        self._process = spawn([str(redis_binary()), str(self._config), "--sentinel"])
        self._wait_for_answer(KNOWS_SECONDS, "the Sentinel, which knows the replica,")

    def master_port(self) -> int:
        """Return the port of the master, as it tells clients."""
        with self._client() as client:
            # redis-py 6.4 cannot read the answer to its own `sentinel_get_master_addr_by_name`.
            return int(client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def fail_over(self) -> None:
        """Begin a planned failover, as an operator does it, as soon as it knows a fit replica."""
        with self._client() as client:
            wait_for(lambda: self._has_begun(client), KNOWS_SECONDS, "a replica to promote")

    def _has_begun(self, client: redis.Redis) -> bool:
        try:
            return bool(client.execute_command("SENTINEL", "FAILOVER", self.name))
        except redis.ResponseError:
            return False

    def _client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=5.0, retry=Retry(NoBackoff(), 0))

    def _answers(self) -> bool:
        try:
            with self._client() as client:
                return bool(client.sentinel_slaves(self.name))
        except redis.RedisError:
            return False
