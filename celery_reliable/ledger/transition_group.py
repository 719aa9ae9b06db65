"""The base of the classes that make up the ledger."""

from __future__ import annotations

import zlib

from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.ended_tasks import Ending
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import encoded

__all__ = ["STOPPING_LOOK_MS", "TransitionGroup"]

#: When the sweeper looks whether a called-off attempt was stopped; usually its worker has told.
STOPPING_LOOK_MS = 10_000


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
    _caller: Caller

    def _ending(self, task_id: str, outcome: str, by: str, *, is_kept: bool = False) -> Ending:
        one_in = self.sample_one_in
        is_kept = is_kept or (one_in > 0 and zlib.crc32(encoded(task_id)) % one_in == 0)
        return Ending(outcome, by, self.keep_ended, is_kept)
