"""Transitions of tasks that wait for their moment: that of an ETA, or the next one of a rate."""

from __future__ import annotations

import math
import time
from typing import Any

import redis

from celery_reliable.compat.redis import has_something_to_read
from celery_reliable.ledger.answers import WaitAnswer, WakeAnswer
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import Step
from celery_reliable.model import Rate

__all__ = ["Bell", "Moments"]


#: A wait for the bell is given up after that: its connection may be gone without a sign.
_LISTEN_SECONDS, _GONE_SECONDS = 30, 40


class Bell:
    """Rings when a task is to begin before all that wait: heard on a connection of its own, for
    one thread.
    """

    def __init__(self, connector: Connector, keys: Keys) -> None:
        self._pool = connector.client().connection_pool
        self._key = keys.bell
        self._connection: Any = None
        #: Since when its answer is awaited (monotonic); 0: it is not asked.
        self._asked_at = 0.0

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it rings; False where it cannot be heard."""
        try:
            if self._asked_at and time.monotonic() - self._asked_at > _GONE_SECONDS:
                self.close()
            if self._connection is None:
                self._connection = self._pool.make_connection()
            if not self._asked_at:
                # Every user who may consume may pop, too.
                self._connection.send_command("BRPOP", self._key, _LISTEN_SECONDS)
                self._asked_at = time.monotonic()
            if has_something_to_read(self._connection, seconds):
                self._asked_at = 0.0
                self._connection.read_response()
        except (redis.RedisError, OSError):
            self.close()
            return False
        return True

    def close(self) -> None:
        """Hear it no more until the next `wait`."""
        if self._connection is not None:
            self._connection.disconnect()
        self._asked_at = 0.0


class Moments(Part):
    """When tasks may begin that may not begin yet."""

    def wait(
        self,
        task_id: str,
        wait: Rate | float,
        *,
        epoch: str,
        queue: str = "",
        patience_seconds: float | None = None,
    ) -> WaitAnswer:
        """Ask for the moment of a publication: it is now, or the task waits until then.

        *wait*: its rate, or the seconds until its ETA.  *queue*: the list on this server that its
        message goes into at its moment, as it is; without it `wake` returns the task.
        """
        step = self.wait_step(task_id, wait, epoch=epoch, queue=queue)
        return self._caller.run(step, patience_seconds)

    def wait_step(
        self, task_id: str, wait: Rate | float, *, epoch: str, queue: str = ""
    ) -> Step[WaitAnswer]:
        """Return the call of `wait` unsent: a claim may be made in one step with it."""
        if isinstance(wait, Rate):
            asked: dict[str, Any] = {"interval_us": wait.interval_us, "key": wait.key}
        else:
            asked = {"in_ms": math.ceil(wait * 1000)}
        return self.calls.wait(id=task_id, epoch=epoch, list=queue, **asked)

    def wake(self, worker: str, *, lease_ms: int, limit: int, due_in_ms: int) -> WakeAnswer:
        """Let out at most *limit* tasks whose moment has come, and return those that are to be
        sent; what is returned and not sent is due, for the sweeper.

        One *worker* does so for *lease_ms* after each call; to the others the answer is Another.
        *due_in_ms*: when somebody looks whether a worker has claimed what was sent.
        """
        return self._caller.run(
            self.calls.wake(who=worker, lease_ms=lease_ms, limit=limit, due_in_ms=due_in_ms)
        )
