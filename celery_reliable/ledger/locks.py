"""The lock of one object: SETNX, keyed by task and object id, held by a record and not by a
clock.
"""

from __future__ import annotations

import time

from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.store import Ledger
from celery_reliable.model import Claim, Reply

__all__ = ["ObjectLocks"]

#: How long a call waits for a task to end whose outcome is being stored: for its hooks, usually.
_CONCLUDING_SECONDS = 2.0
_CONCLUDING_POLL_SECONDS = 0.01


class ObjectLocks:
    """Takes, frees and keeps object locks on the ledger's Redis.

    Promises that two tasks never hold one object at once as long as the ledger's promise about
    attempts holds.  A lock that outlives the record that holds it keeps nobody out, so it needs no
    expiry: both are on one server, and cannot be lost independently.  One that is kept outlives its
    record on purpose, and only expires.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._keys = ledger.keys
        self._caller = Caller(ledger.connector.client(), ledger.connector.shown, 10.0)

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()

    def take(
        self, object_key: str, claim: Claim, *, patience_seconds: float | None = None
    ) -> str | None:
        """Take the lock of *object_key* for *claim*, or for a publication, which is attempt 0.

        Returns None when it is ours, else the id of the task that holds it: one whose record is
        running, queued, parked or waiting, one for which it is kept, or one of which a worker is
        still to stop an attempt.  A holder whose record is gone or dead is taken over, by
        comparing.  What a publication is told of cannot be withdrawn any more.

        An attempt that is not the current one of its own id is told an empty one: its own may be
        that of a former task, for which the object is kept.  A publication gets
        None without the lock where its record is gone, and where only what is being stopped has
        the object: it is sent in any case, and its attempt comes back to it.
        """
        seen = holder = ""
        deadline = time.monotonic() + _CONCLUDING_SECONDS
        while True:
            answer = self._caller.call(
                "lock",
                [
                    self._keys.lock(object_key),
                    self._keys.record(claim.task_id),
                    self._keys.record(holder),
                ],
                [claim.task_id, claim.attempt, seen, claim.token],
                patience_seconds,
            )
            if answer.reply is Reply.LOCKED:
                return None
            if answer.reply is Reply.FENCED:
                return "" if claim.attempt else None
            if answer.reply is Reply.STOPPING:
                if self._ledger.is_outlived(
                    holder, answer.text(0), patience_seconds=patience_seconds
                ):
                    continue
                return holder if claim.attempt else None
            before, seen = seen, answer.text(0)
            if answer.reply is Reply.KEPT:
                return seen
            holder = seen.partition(":")[2]
            # The second time its record was looked at too.
            if claim.attempt:
                if seen == before:
                    return holder
            elif self._rely(holder, deadline, patience_seconds):
                return holder
            # It may have ended meanwhile: then it may be another's turn.

    def _rely(self, holder: str, deadline: float, patience_seconds: float | None) -> bool:
        """Whether a call is to be answered with *holder*.  One whose outcome is being stored is
        waited for until *deadline*.
        """
        while True:
            waited = time.monotonic() >= deadline
            answer = self._caller.call(
                "rely",
                [self._keys.record(holder)],
                ["1" if waited else ""],
                patience_seconds,
            )
            if answer.reply is not Reply.CONCLUDING:
                return answer.reply is Reply.EXISTS
            time.sleep(_CONCLUDING_POLL_SECONDS)

    def free(
        self,
        object_key: str,
        claim: Claim,
        *,
        is_over: bool = False,
        patience_seconds: float | None = None,
    ) -> bool:
        """Free the lock if *claim* still holds it; False when it does not, or when it is kept.

        *is_over*: the task has ended, and what an older attempt of it holds is freed too; nothing
        when the id was published anew since.
        """
        answer = self._caller.call(
            "unlock",
            [self._keys.lock(object_key), self._keys.record(claim.task_id)],
            [claim.task_id, claim.attempt, claim.token, int(is_over)],
            patience_seconds,
        )
        return answer.reply is Reply.UNLOCKED or answer.is_repeated

    def keep(
        self,
        object_key: str,
        claim: Claim,
        *,
        keep_ms: int,
        patience_seconds: float | None = None,
    ) -> bool:
        """Keep the lock of an attempt that succeeded for *keep_ms* by the server's clock, whatever
        becomes of its record; False when *claim* does not hold it.

        Until it is settled, a later attempt of the same task walks in all the same.
        """
        answer = self._caller.call(
            "keep",
            [self._keys.lock(object_key), self._keys.record(claim.task_id)],
            [claim.task_id, claim.attempt, claim.token, keep_ms],
            patience_seconds,
        )
        return answer.reply is Reply.KEPT
