"""The ledger itself."""

from __future__ import annotations

from celery_reliable.ledger.attempts import Attempts
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.groups import Groups
from celery_reliable.ledger.happenings import Audits, Happenings
from celery_reliable.ledger.indexes import Indexes
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.moments import Moments
from celery_reliable.ledger.named import NamedTasks, Runs
from celery_reliable.ledger.order_book import OrderBook
from celery_reliable.ledger.outcomes import Outcomes
from celery_reliable.ledger.publications import Publications, Senders
from celery_reliable.ledger.records import Records
from celery_reliable.ledger.workers import Passes, Workers

__all__ = ["Ledger"]


class Ledger(Publications, Attempts, Outcomes, Records, Indexes):
    """What is known of every task and worker of one namespace; knows no Celery.

    Each method is one atomic step on the server, and may be repeated.  All raise LedgerUnavailable
    and LedgerRefused.  A task is as durable as the Redis that has the ledger, and not more.
    """

    def __init__(
        self,
        connector: Connector,
        namespace: str,
        *,
        patience_seconds: float = 10.0,
        reply_timeout_seconds: float = 5.0,
        single: bool = False,
        keep_ended: int = 10_000,
        sample_one_in: int = 0,
        is_for_operators: bool = False,
    ) -> None:
        keys = Keys(connector.key_prefix + namespace)
        client = connector.client(reply_timeout_seconds=reply_timeout_seconds, single=single)
        meta = keys.meta if is_for_operators else ""
        super().__init__(Caller(client, connector.shown, patience_seconds, meta=meta), keys)
        self.connector = connector
        self.namespace = namespace
        self.workers = Workers(self._caller, keys)
        self.passes = Passes(self._caller, keys)
        self.moments = Moments(self._caller, keys)
        self.happenings = Happenings(self._caller, keys)
        self.audits = Audits(self._caller, keys)
        self.named = NamedTasks(self._caller, keys)
        self.orders = OrderBook(self._caller, keys)
        self.runs = Runs(self._caller, keys)
        self.groups = Groups(self._caller, keys)
        #: The server's generation as far as known; the first answer that refuses it tells it.
        self.generation = "1"
        self.keep_ended = keep_ended
        self.sample_one_in = sample_one_in
        #: The names under which this process publishes.
        self.senders = Senders()

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()
