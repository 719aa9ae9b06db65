"""The lock of one object: SETNX, keyed by task and object id, held by a record and not by a
clock.
"""

from __future__ import annotations

from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.store import Ledger
from celery_reliable.model import Claim, Reply, State

__all__ = ["ObjectLocks"]

#: A holder's record can end between our look at the lock and our look at the record; then it is
#: another's turn.
_TRIES = 5


class ObjectLocks:
    """Takes and frees object locks on the ledger's Redis.

    Promises that two tasks never hold one object at once as long as the ledger's promise about
    attempts holds.  A lock that outlives the record that holds it keeps nobody out, so it needs no
    expiry: both are on one server, and cannot be lost independently.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._keys = ledger.keys
        self._caller = Caller(ledger.connector.client(), ledger.connector.shown, 10.0)

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
                [claim.task_id, claim.attempt, seen],
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
