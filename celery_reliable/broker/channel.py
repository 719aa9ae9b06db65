"""The Redis channel of workers and producers, as far as both need the same."""

from __future__ import annotations

from typing import Any

import redis

from celery_reliable.compat.kombu import OpenChannel
from celery_reliable.log import logger
from celery_reliable.redis_io import losing

__all__ = ["ConnectedChannel"]


class ConnectedChannel(OpenChannel):
    """kombu's Redis channel with one client for all operations, and with connections that count as
    lost when their server takes no writes.
    """

    #: The name of the unacked hash of the worker that consumes through this channel.
    reliable_unacked: str | None = None

    #: Whether a channel is only opened on a server that takes writes.
    has_to_write = True

    _kept_client: Any = None
    _kept_pool: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.has_to_write:
            self._try_to_write()

    def connection_arguments(self, asynchronous: bool) -> dict[str, Any]:
        """Return how connections are made: one whose server may not write is closed as lost."""
        arguments = super().connection_arguments(asynchronous)
        return {**arguments, "connection_class": losing(arguments["connection_class"])}

    def new_client(self, asynchronous: bool) -> Any:
        """Return a client: a new one for the event loop, else always the same."""
        if asynchronous:
            return super().new_client(asynchronous)
        if self._kept_client is None or self._kept_pool is not self.pool_so_far:
            self._kept_client = super().new_client(asynchronous)
            self._kept_pool = self.pool_so_far
        return self._kept_client

    def _try_to_write(self) -> None:
        """Raise a connection error where nothing can be written.

        It is raised as the channel is opened, because Celery waits between its attempts to connect,
        and does not wait between those to begin to consume.
        """
        try:
            # Removes a member that is not there from a key that kombu uses anyway.
            self.client.srem(self.keyprefix_queue % "celery-reliable", "")
        except redis.ResponseError as exc:
            # A user without the right to do this is told of it where the right is needed.
            logger.debug("writing_not_tried error=%s", exc)
        except BaseException:
            self.close_connections()
            raise
