"""What can be read of workers and of their connections; nothing here decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery_reliable.compat.redis import kept_connection, socket_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import rows
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.replies import ms_of
from celery_reliable.model import Claim

__all__ = ["WorkerReads"]


class WorkerReads:
    """Reads of workers, which may have changed when the answer arrives."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        self._caller = caller
        self._keys = keys

    def leases(self) -> list[WorkerLease]:
        """Return the lease of each worker, also of dead ones that hold something."""

        def read(client: Any) -> tuple[list[tuple[bytes, float]], list[list[bytes | None]]]:
            found = client.zrange(self._keys.workers, 0, -1, withscores=True)
            pipe = client.pipeline(transaction=False)
            for name, _ in found:
                pipe.hmget(self._keys.worker(name.decode()), rows.LEASE_FIELDS)
            return found, pipe.execute() if found else []

        found, read_rows = self._caller.read("leases", read)
        return [
            rows.lease(name.decode(), int(until_ms), row)
            for (name, until_ms), row in zip(found, read_rows, strict=True)
        ]

    def connected(self, client_ids: Iterable[str]) -> set[str] | None:
        """Return which of *client_ids* are connected to the server now; None when the server
        does not tell.
        """
        wanted = [i for i in client_ids if i.isdigit() and i != "0"]
        if not wanted:
            return set()

        def read(client: Any) -> set[str] | None:
            import redis

            try:
                rows = client.client_list(client_id=wanted)
            except redis.ResponseError:
                return None
            return {str(row["id"]) for row in rows}

        return self._caller.read("client list", read)

    def claims(self, worker: str) -> dict[str, tuple[Claim, int]]:
        """Return what *worker* runs: task id -> its claim and the pid of the process."""
        raw = self._caller.read("claims", lambda client: client.hgetall(self._keys.claims(worker)))
        return dict(_claim(worker, key.decode(), value.decode()) for key, value in raw.items())

    @property
    def connection(self) -> Any:
        """The connection of a client that was made with `single`."""
        return kept_connection(self._caller.client)

    def client_id(self, connection: Any, known_socket: Any, known_id: int) -> tuple[int, Any]:
        """Connect if necessary; return the connection's id at the server and its socket.

        Asks the server only when the socket is another one than *known_socket*.  0 when the server
        does not tell.
        """

        def ask(client: Any) -> int:
            import redis

            if socket_of(connection) is None:
                connection.connect()
            if socket_of(connection) is known_socket:
                return known_id
            try:
                return int(client.client_id())
            except redis.ResponseError:
                return 0

        found = self._caller.read("client id", ask, 0)
        return found, socket_of(connection)

    def time_ms(self) -> int:
        """Return the server's time in ms."""
        return ms_of(self._caller.read("time", lambda client: client.time()))


def _claim(worker: str, task_id: str, text: str) -> tuple[str, tuple[Claim, int]]:
    """Read what is noted of a task that *worker* runs."""
    attempt, pid, token = text.split(" ", 2)
    return task_id, (Claim(task_id, int(attempt), worker, token), int(pid))
