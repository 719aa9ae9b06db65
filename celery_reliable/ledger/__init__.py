"""The ledger: every atomic decision of the package, and (with the transport) the only import of
redis.
"""

from __future__ import annotations

from celery_reliable.ledger import answers
from celery_reliable.ledger.caller import FOREVER
from celery_reliable.ledger.connector import Connector, connect, server_of
from celery_reliable.ledger.line import Line
from celery_reliable.ledger.locks import ObjectLocks
from celery_reliable.ledger.passing import losing
from celery_reliable.ledger.rights import Command, denied, ledger_commands, on_key
from celery_reliable.ledger.rows import Found
from celery_reliable.ledger.store import Ledger
from celery_reliable.ledger.transitions import Step
from celery_reliable.ledger.trial import try_out

__all__ = [
    "FOREVER",
    "Command",
    "Connector",
    "Found",
    "Ledger",
    "Line",
    "ObjectLocks",
    "Step",
    "answers",
    "connect",
    "denied",
    "ledger_commands",
    "losing",
    "on_key",
    "server_of",
    "try_out",
]
