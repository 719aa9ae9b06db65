"""The lock of one object: SETNX, keyed by task and object id, held by a record and not by a
clock.
"""

from __future__ import annotations

import time

from celery_reliable.ledger.answers import LockAnswer, RelyAnswer, UnlockAnswer
from celery_reliable.ledger.answers.tasks import (
    Concluding,
    Exists,
    KeptFor,
    Locked,
    LockedBy,
    NotCurrent,
    NotHeld,
    Stopping,
    Unlocked,
)
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.store import Ledger
from celery_reliable.ledger.transitions import Transition
from celery_reliable.model import Claim

__all__ = ["ObjectLocks"]

#: How long a call waits for a task to end whose outcome is being stored: for its hooks, usually.
_CONCLUDING_SECONDS = 2.0
_CONCLUDING_POLL_SECONDS = 0.01

_LOCK: Transition[LockAnswer] = Transition("lock", LockAnswer)
_RELY: Transition[RelyAnswer] = Transition("rely", RelyAnswer)
_UNLOCK: Transition[UnlockAnswer] = Transition("unlock", UnlockAnswer, repeated=(NotHeld, Unlocked))


class ObjectLocks:
    """Takes and gives back object locks on the ledger's Redis; what ends a task frees its lock.

    Promises that two tasks never hold one object at once as long as the ledger's promise about
    attempts holds.  A lock that outlives the record that holds it keeps nobody out, so it needs no
    expiry: both are on one server, and cannot be lost independently.  One that is kept after a
    success outlives its record on purpose, and only expires.
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
                _LOCK,
                [
                    self._keys.lock(object_key),
                    self._keys.record(claim.task_id),
                    self._keys.record(holder),
                ],
                [claim.task_id, claim.attempt, seen, claim.token, object_key],
                patience_seconds,
            )
            match answer:
                case Locked():
                    return None
                case NotCurrent():
                    return "" if claim.attempt else None
                case KeptFor():
                    return answer.task_id
                case Stopping():
                    if self._ledger.is_outlived(
                        holder, answer.worker, patience_seconds=patience_seconds
                    ):
                        continue
                    return holder if claim.attempt else None
                case LockedBy():
                    before, seen, holder = seen, answer.value, answer.task_id
            # The second time its record was looked at too.
            is_his = (
                seen == before if claim.attempt else self._rely(holder, deadline, patience_seconds)
            )
            if is_his:
                return holder
            # It may have ended meanwhile: then it may be another's turn.

    def _rely(self, holder: str, deadline: float, patience_seconds: float | None) -> bool:
        """Whether a call is to be answered with *holder*.  One whose outcome is being stored is
        waited for until *deadline*.
        """
        while True:
            waited = time.monotonic() >= deadline
            answer = self._caller.call(
                _RELY,
                [self._keys.record(holder)],
                ["1" if waited else ""],
                patience_seconds,
            )
            if not isinstance(answer, Concluding):
                return isinstance(answer, Exists)
            time.sleep(_CONCLUDING_POLL_SECONDS)

    def free(self, object_key: str, claim: Claim, *, patience_seconds: float | None = None) -> bool:
        """Give an object back as the attempt's body is over, and its record goes on; False when
        *claim* does not hold it.
        """
        answer = self._caller.call(
            _UNLOCK,
            [self._keys.lock(object_key), self._keys.record(claim.task_id)],
            [claim.task_id, claim.attempt, claim.token, object_key],
            patience_seconds,
        )
        return isinstance(answer, Unlocked)
