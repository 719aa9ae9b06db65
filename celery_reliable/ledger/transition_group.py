"""What the parts of a ledger have in common."""

from __future__ import annotations

from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.keys import Keys

__all__ = ["STOPPING_LOOK_MS", "TransitionGroup"]

#: When to look whether what was called off has been stopped: usually its worker says so before.
STOPPING_LOOK_MS = 10_000


class TransitionGroup:
    """Some of a ledger's transitions: one method for each, named after its script."""

    connector: Connector
    keys: Keys
    #: The generation of the last record; learned from the first refusal.
    generation: str
    _caller: Caller
