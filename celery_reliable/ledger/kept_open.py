"""A connection that stays open when a reply is late.

redis-py closes a connection after a timeout.  The server would see a heartbeat's connection end,
and the sweeper would take that for the end of the worker.
"""

from __future__ import annotations

from typing import Any

import redis

from celery_reliable.compat.redis import put_aside, turn_into

__all__ = ["KeptOpenConnection", "kept_open"]


class KeptOpenConnection:
    """Mixed into a class of redis-py's connections.

    When a reply does not come in time, the socket is put aside and not closed.  The next command
    goes over a new one.
    """

    #: Sockets that were put aside, the oldest first.  The owner of the connection closes them.
    left_open: list[Any]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Return the next reply, as redis-py does."""
        kwargs["disconnect_on_error"] = False
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except redis.TimeoutError:
            sock = put_aside(self)
            if sock is not None:
                self.left_open.append(sock)
            raise
        except redis.ResponseError:
            raise
        except BaseException:
            # The unread reply would be taken for that of the next command.
            self.disconnect()  # type: ignore[attr-defined]
            raise

    def close_left_open(self, most: int = 0) -> None:
        """Close the sockets that were put aside, except the *most* latest."""
        while len(self.left_open) > most:
            self.left_open.pop(0).close()


def kept_open(connection: Any) -> Any:
    """Give a connection that is in no pool the behaviour of `KeptOpenConnection`; return it."""
    made = turn_into(connection, KeptOpenConnection)
    made.left_open = []
    return made
