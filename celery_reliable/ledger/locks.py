"""The lock of one object: SETNX, keyed by task and object id, held by a record and not by a
clock.
"""

from __future__ import annotations

from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connect import Connector
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.store import Ledger
from celery_reliable.model import Claim, Reply, State

__all__ = ["ObjectLocks"]

#: A holder's record can end between our look at the lock and our look at the record; then it is
#: another's turn.
_TRIES = 5


class ObjectLocks:
    """Takes and frees object locks on the ledger's Redis, or on another one (a cache's).

    Promises that two tasks never hold one object at once as long as the ledger's promise about
    attempts holds.
    """

    def __init__(
        self, ledger: Ledger, connector: Connector | None = None, *, ttl_ms: int = 0
    ) -> None:
        self._ledger = ledger
        where = connector or ledger.connector
        self._keys = Keys(where.key_prefix + ledger.namespace)
        self._caller = Caller(where.client(), where.shown, 10.0)
        # On the ledger's own server a lock cannot outlive the record that holds it by more than one
        # look, so it needs no expiry; elsewhere the two could be lost independently.
        self._ttl_ms = ttl_ms

    def close(self) -> None:
        """Close the connections."""
        self._caller.client.close()
        self._caller.client.connection_pool.disconnect()

    def take(
        self, object_key: str, claim: Claim, *, patience_seconds: float | None = None
    ) -> str | None:
        """Take the lock of *object_key* for *claim*.

        Returns None when it is ours, else the id of the task that holds it: one whose record is
        running, queued or parked.  A holder whose record is gone or dead is taken over, by
        comparing.
        """
        seen = ""
        holder = ""
        for _ in range(_TRIES):
            answer = self._caller.call(
                "lock",
                [self._keys.lock(object_key)],
                [claim.task_id, claim.attempt, seen, self._ttl_ms],
                patience_seconds,
            )
            if answer.reply is Reply.LOCKED:
                return None
            seen = answer.text(0)
            holder = seen.partition(":")[2]
            record = self._ledger.find(holder, patience_seconds=patience_seconds)
            if record is not None and record.state is not State.DEAD:
                return holder
        return holder

    def free(self, object_key: str, claim: Claim, *, patience_seconds: float | None = None) -> bool:
        """Free the lock if *claim* still holds it; False when it does not."""
        answer = self._caller.call(
            "unlock",
            [self._keys.lock(object_key)],
            [claim.task_id, claim.attempt],
            patience_seconds,
        )
        return answer.reply is Reply.UNLOCKED or answer.is_repeated
