"""The call that takes messages: a connection of its own, on which another call may go along."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from itertools import count
from typing import Any

import redis

from celery_reliable.broker.deliveries import Beside
from celery_reliable.broker.unacked import script
from celery_reliable.redis_io import Line

__all__ = ["Taking"]


class Taking:
    """Asks the server to take.  It is the main loop's, which asks with every message."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._line = Line(pool)
        self._script = script("take")
        self._pid, self._own, self._numbers = 0, "", count(1)

    def new_prefix(self) -> str:
        """Return what the tags of one taking begin with; no other one's do, in any process."""
        if self._pid != os.getpid():
            self._pid, self._own = os.getpid(), str(uuid.uuid4())
        return f"{self._own}-{next(self._numbers)}:"

    def ask(
        self, keys: Sequence[str], args: Sequence[str | bytes | int], beside: Beside | None
    ) -> Any:
        """Return what the script answers; *beside* hears what its own call is answered.

        Raises redis-py's errors.
        """
        call = (len(keys), *keys, *args)
        take = ("EVALSHA", self._script.sha, *call)
        if beside is None:
            (reply,) = self._line.ask(take)
        else:
            try:
                reply, answer = self._line.ask(take, ("EVALSHA", *beside.call))
                beside.hear(answer)
            except (redis.ConnectionError, redis.TimeoutError, OSError):
                # The other call is lost; whoever wanted it can ask again, and waits longer.
                (reply,) = self._line.ask(take)
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = self._line.ask(("EVAL", self._script.text, *call))
        if isinstance(reply, Exception):
            raise reply
        return reply
