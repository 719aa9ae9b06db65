"""The locks of objects.  A lock is held by a task's record: it does not expire."""

from __future__ import annotations

import time

from celery_reliable.ledger.answers import (
    Concluding,
    Exists,
    KeptFor,
    Locked,
    LockedBy,
    NotCurrent,
    OwnPlace,
    Stopping,
    Unlocked,
)
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.store import Ledger
from celery_reliable.ledger.transition_group import run_freeing
from celery_reliable.model import Claim

__all__ = ["ObjectLocks"]

#: How long a call waits for a task whose outcome is being stored.  Usually its hooks still run.
_CONCLUDING_SECONDS = 2.0
_CONCLUDING_POLL_SECONDS = 0.01


class ObjectLocks:
    """Takes and frees the locks of objects.  The script that ends a task frees its lock too.

    Two tasks never hold one object at once.  A lock whose record is gone keeps nobody out: both are
    on one server, which cannot lose one without the other.  So a lock needs no expiry.  The
    exception is a lock that is kept after a success: it outlives the record, and expires.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._calls = ledger.calls
        self._caller = Caller(ledger.connector.client(), ledger.connector.shown, 10.0)

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()

    def take(
        self, object_key: str, claim: Claim, *, patience_seconds: float | None = None
    ) -> str | None:
        """Take the lock of *object_key* for *claim*.

        A publication is a claim with attempt 0, and has its epoch as its token.

        Returns None if the caller may go on, or else the id of the task that has the object: its
        record lives, the object is kept for it, or a worker has still to stop an attempt of it.  A
        holder whose record is gone or dead loses the lock.  A publication whose id was returned to
        a unique call cannot be withdrawn any more.

        Returns an empty id for an attempt that is not the current one of its task.  A publication
        gets None without the lock in two cases: its record is gone or another's, or the holder is
        only being stopped.  It is sent then, and its attempt asks for the lock again.
        """
        seen = holder = ""
        own = ""
        deadline = time.monotonic() + _CONCLUDING_SECONDS
        while True:
            step = self._calls.lock(
                id=claim.task_id,
                attempt=claim.attempt,
                token=claim.token,
                object=object_key,
                seen=seen,
                holder=holder,
                own=own,
            )
            answer = self._caller.run(step, patience_seconds)
            match answer:
                case Locked():
                    return None
                case NotCurrent():
                    return "" if claim.attempt else None
                case KeptFor():
                    return answer.task_id
                case OwnPlace():
                    own = answer.object_key
                    continue
                case Stopping():
                    if self._ledger.is_outlived(
                        holder, answer.worker, patience_seconds=patience_seconds
                    ):
                        continue
                    return holder if claim.attempt else None
                case LockedBy():
                    before, seen = seen, answer.value
                    holder = seen.partition(":")[2]
            # Only the second call has compared the holder's record.
            is_his = (
                seen == before if claim.attempt else self._rely(holder, deadline, patience_seconds)
            )
            if is_his:
                return holder
            # The holder may have ended meanwhile, so the lock may be another's by now.

    def _rely(self, holder: str, deadline: float, patience_seconds: float | None) -> bool:
        """Whether a unique call is to be answered with *holder*.

        Waits until *deadline* (monotonic) for a holder whose outcome is being stored.
        """
        while True:
            waited = time.monotonic() >= deadline
            step = self._calls.rely(id=holder, waited=waited)
            answer = self._caller.run(step, patience_seconds)
            if not isinstance(answer, Concluding):
                return isinstance(answer, Exists)
            time.sleep(_CONCLUDING_POLL_SECONDS)

    def free(self, object_key: str, claim: Claim, *, patience_seconds: float | None = None) -> bool:
        """Free an object whose attempt is over, but whose task goes on.

        Returns False if *claim* does not hold it.
        """
        step = self._calls.unlock(
            id=claim.task_id, attempt=claim.attempt, token=claim.token, object=object_key
        )
        answer = run_freeing(
            self._caller,
            self._calls,
            step,
            object_key,
            self._ledger.on_next,
            patience_seconds,
            has_line=claim.has_line,
            next_up=claim.next_up,
        )
        return isinstance(answer, Unlocked)
