"""The pool itself: Celery's prefork pool, whose processes can be given shifts."""

from __future__ import annotations

from typing import Any

from celery.concurrency.prefork import TaskPool as PreforkPool

from celery_reliable.compat.processes import pool_of_lives
from celery_reliable.pool.life import own_life
from celery_reliable.pool.telling import own_line

__all__ = ["TaskPool", "kind_of"]


class TaskPool(PreforkPool):
    """Celery's prefork pool, in which a process goes on by itself while messages wait.

    While nothing waits it is a prefork pool: the main process waits for a message, and hands it to
    an idle process.  When more messages wait, idle processes get a *shift*: each takes messages,
    runs their tasks, and settles them, without the main process.  A shift ends when nothing waits,
    after a second, or when the main process calls it off.

    Only the ordinary tasks run like that: reliable ones, of queues in the ledger's own database,
    without ETA, expiry, rate, or the like.  All others go by the main process as in prefork.
    """

    #: What kind of pool it is, for all who have to know.
    kind = "prefork"

    def on_start(self) -> None:
        """Start the processes: each knows how many tasks it has run, and can tell of them."""
        self.Pool = pool_of_lives(own_life, own_line)
        super().on_start()


def kind_of(pool: Any) -> str:
    """Return of what kind a pool, or a class of pools, is: "prefork", "solo", or another module."""
    cls = pool if isinstance(pool, type) else type(pool)
    return str(getattr(cls, "kind", "") or cls.__module__.rpartition(".")[2])
