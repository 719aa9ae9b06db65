"""The ledger: every atomic decision of the package, and (with the transport) the only import of
redis.
"""

from __future__ import annotations

from celery_reliable.ledger.connect import Connector, connect, server_of
from celery_reliable.ledger.locks import ObjectLocks
from celery_reliable.ledger.store import Ledger

__all__ = ["Connector", "Ledger", "ObjectLocks", "connect", "server_of"]
