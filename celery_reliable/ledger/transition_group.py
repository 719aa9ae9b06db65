"""The base of the classes that make up the ledger."""

from __future__ import annotations

from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.keys import Keys

__all__ = ["STOPPING_LOOK_MS", "TransitionGroup"]

#: When the sweeper looks whether a called-off attempt was stopped; usually its worker has told.
STOPPING_LOOK_MS = 10_000


class TransitionGroup:
    """Some of the ledger's transitions.  A method is named after its script."""

    connector: Connector
    keys: Keys
    #: The generation of the last record; learned from the first refusal.
    generation: str
    _caller: Caller
