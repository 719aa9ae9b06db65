"""What the ledger knows of a drill's tasks, and how nothing is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kombu import Exchange, Queue

from celery_reliable.exceptions import LedgerUnavailable, UnknownDeadLetter
from celery_reliable.model import State
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.queues import purge

__all__ = ["Ends"]


class Ends:
    """Looks after the ends of a drill's tasks."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def state(self, task: str) -> str:
        """The state of a task's record; empty for none, "unknown" while the ledger is away."""
        try:
            look, _ = self._desk.ledger.look(task)
        except LedgerUnavailable:
            return "unknown"
        return "" if look is None else look.record.state.value

    def clean_up(self, tasks: Sequence[str], queue: str, *, by: str) -> None:
        """Leave nothing of a drill: neither tasks nor letters, nor its queue.  Raises what the
        ledger raises, and kombu's errors.
        """
        for task in tasks:
            look, _ = self._desk.ledger.look(task)
            if look is not None and look.record.state is State.DEAD:
                with suppress(UnknownDeadLetter):
                    self._desk.letters.discard(task, by=by)
            elif look is not None:
                self._desk.ledger.cancel(task, epoch=look.record.epoch, by="the drill is over")
        purge(self._desk.app, [queue])
        with self._desk.app.connection_for_write() as connection, connection.channel() as channel:
            # What is not declared here is not known here.
            bound = Queue(queue, Exchange(queue), routing_key=queue)(channel)
            bound.declare()
            bound.delete()
