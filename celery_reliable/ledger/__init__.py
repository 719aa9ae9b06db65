"""The ledger decides: every atomic decision of the package, as a script on its Redis."""

from __future__ import annotations

from copy import copy

from celery_reliable.ledger import answers
from celery_reliable.ledger.attempts import Attempts, TakenMessage, TakeStep, TakeSteps
from celery_reliable.ledger.caller import FOREVER, FORMAT, Caller
from celery_reliable.ledger.connector import Connector, behind_sentinels, connect, server_of
from celery_reliable.ledger.happenings import Audits, Happenings, NotedRow
from celery_reliable.ledger.holds import Bell, Moments, OrderBook
from celery_reliable.ledger.indexes import Held, Indexes, ObjectLook, Place, WorkerLook
from celery_reliable.ledger.named import LivingWorker, LivingWorkers, NamedTasks, Run, Runs
from celery_reliable.ledger.outcomes import Outcomes
from celery_reliable.ledger.publications import AS_IT_IS, Publications, Resent, Senders, dues_of
from celery_reliable.ledger.records import Found, Groups, Look, Records
from celery_reliable.ledger.schema import Keys, line_of, slots
from celery_reliable.ledger.startup_test import self_test
from celery_reliable.ledger.transitions import Step
from celery_reliable.ledger.workers import Passes, Workers, taken_from, to_stop

__all__ = [
    "AS_IT_IS",
    "FOREVER",
    "FORMAT",
    "Bell",
    "Connector",
    "Found",
    "Held",
    "Ledger",
    "LivingWorker",
    "LivingWorkers",
    "Look",
    "NotedRow",
    "ObjectLook",
    "Place",
    "Resent",
    "Run",
    "Runs",
    "Step",
    "TakeStep",
    "TakeSteps",
    "TakenMessage",
    "WorkerLook",
    "answers",
    "behind_sentinels",
    "connect",
    "dues_of",
    "line_of",
    "self_test",
    "server_of",
    "slots",
    "taken_from",
    "to_stop",
]


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
        keys = Keys(namespace)
        client = connector.client(reply_timeout_seconds=reply_timeout_seconds, single=single)
        meta = keys.meta if is_for_operators else ""
        self.connector = connector
        self.namespace = namespace
        #: The server's generation as far as known; the first answer that refuses it tells it.
        self.generation = "1"
        self.keep_ended = keep_ended
        self.sample_one_in = sample_one_in
        #: The names under which this process publishes.
        self.senders = Senders()
        self._ask_by(Caller(client, connector.shown, patience_seconds, meta=meta), keys)

    def _ask_by(self, caller: Caller, keys: Keys) -> None:
        super().__init__(caller, keys)
        self.workers = Workers(self._caller, keys)
        self.passes = Passes(self._caller, keys)
        self.moments = Moments(self._caller, keys)
        self.happenings = Happenings(self._caller, keys)
        self.audits = Audits(self._caller, keys)
        self.named = NamedTasks(self._caller, keys)
        self.orders = OrderBook(self._caller, keys)
        self.runs = Runs(self._caller, keys)
        self.groups = Groups(self._caller, keys)

    def with_patience(self, seconds: float) -> Ledger:
        """Return the same ledger over the same connections, which waits so long for an answer."""
        other = copy(self)
        other._ask_by(  # noqa: SLF001
            self._caller.with_patience(seconds), self.keys
        )
        return other

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()
