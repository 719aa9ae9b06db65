"""The base of the classes that make up the ledger."""

from __future__ import annotations

import zlib

from celery_reliable.ledger.answers import OutliveAnswer
from celery_reliable.ledger.answers.tasks import Held
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.ended_tasks import Ending
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.lock_release import OnNext, call_freeing_lock
from celery_reliable.ledger.transitions import Transition, encoded

__all__ = ["STOPPING_LOOK_MS", "TransitionGroup"]

#: When the sweeper looks whether a called-off attempt was stopped; usually its worker has told.
STOPPING_LOOK_MS = 10_000

_OUTLIVE: Transition[OutliveAnswer] = Transition("outlive", OutliveAnswer, frees=True)


class TransitionGroup:
    """Some of the ledger's transitions.  A method is named after its script."""

    connector: Connector
    keys: Keys
    #: The generation of the last record; learned from the first refusal.
    generation: str
    #: How many tasks that have ended are kept.
    keep_ended: int
    #: One in so many is kept though nothing happened to it; 0: none.
    sample_one_in: int
    #: Told who stands first in the line of an object that was freed; None: a pass finds out.
    on_next: OnNext | None
    _caller: Caller

    def is_outlived(
        self, task_id: str, worker: str, *, patience_seconds: float | None = None
    ) -> bool:
        """Whether *worker*, which had to stop an attempt of the task, is dead or forgotten."""
        answer = call_freeing_lock(
            self._caller,
            self.keys,
            _OUTLIVE,
            [self.keys.record(task_id), self.keys.worker(worker)],
            [task_id, worker],
            on_next=self.on_next,
            patience_seconds=patience_seconds,
        )
        return not isinstance(answer, Held)

    def _ending(self, task_id: str, outcome: str, by: str, *, is_kept: bool = False) -> Ending:
        one_in = self.sample_one_in
        is_kept = is_kept or (one_in > 0 and zlib.crc32(encoded(task_id)) % one_in == 0)
        return Ending(outcome, by, self.keep_ended, is_kept)
