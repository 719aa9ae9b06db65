"""A connection whose end the server is not to see while a reply is only late.

To the witness the end of a worker's connection is its death.
"""

from __future__ import annotations

from typing import Any

import redis

from celery_reliable.compat.redis import put_aside, turn_into

__all__ = ["KeptOpenConnection", "kept_open"]


class KeptOpenConnection:
    """Goes before the class of one of redis-py's connections: a socket whose reply does not come in
    time is put aside, and not closed.  The next command goes over a new one.
    """

    #: What was put aside, the oldest first; whoever has the connection closes it.
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
            # A reply that nobody has read would be taken for the next one.
            self.disconnect()  # type: ignore[attr-defined]
            raise

    def close_left_open(self, most: int = 0) -> None:
        """Close what was put aside, but the *most* latest."""
        while len(self.left_open) > most:
            self.left_open.pop(0).close()


def kept_open(connection: Any) -> Any:
    """Make a connection of one's own lasting, and return it."""
    made = turn_into(connection, KeptOpenConnection)
    made.left_open = []
    return made
