"""A connection that is kept, for what must not wait for a client's housekeeping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from celery_reliable.compat.redis import ask, has_something_to_read
from celery_reliable.redis_io.errors import undone

__all__ = ["Line"]


class Line:
    """Asks several things of a server in one round trip, on one connection; for one thread at a
    time.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = pool
        self._connection: Any = None

    def ask(self, *commands: Sequence[Any], busy_seconds: float = 0) -> list[Any]:
        """Return what each command is answered; an error reply is returned as its exception.

        *busy_seconds*: for how long the thread waits without a sleep, before it waits as others do.

        Raises redis-py's errors when the connection fails: then nothing is known of any command,
        unless the error tells that nothing was sent (`is_undone`).
        """
        if self._connection is None:
            self._connection = self._pool.make_connection()
        connection = self._connection
        try:
            # What the server has closed meanwhile can be read; nothing else can.
            if has_something_to_read(connection):
                connection.disconnect()
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            connection.disconnect()
        try:
            connection.connect()
        except (redis.RedisError, OSError) as exc:
            undone(exc)
            raise
        try:
            return ask(connection, commands, busy_seconds)
        except BaseException:
            # A reply that nobody has read would be taken for the next one.
            connection.disconnect()
            raise

    def close(self) -> None:
        """Close the connection; it is made anew when something is asked."""
        if self._connection is not None:
            self._connection.disconnect()
