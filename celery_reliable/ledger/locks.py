"""The locks of objects.  A lock is held by a task's record: it does not expire."""

from __future__ import annotations

import time

from celery_reliable.ledger.answers import LockAnswer, RelyAnswer, UnlockAnswer
from celery_reliable.ledger.answers.objects import (
    KeptFor,
    Locked,
    LockedBy,
    NotHeld,
    OwnPlace,
    Stopping,
    Unlocked,
)
from celery_reliable.ledger.answers.tasks import Concluding, Exists, NotCurrent
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.store import Ledger
from celery_reliable.ledger.transition_group import run_freeing
from celery_reliable.ledger.transitions import Step, Transition
from celery_reliable.model import Claim

__all__ = ["ObjectLocks"]

#: How long a call waits for a task whose outcome is being stored.  Usually its hooks still run.
_CONCLUDING_SECONDS = 2.0
_CONCLUDING_POLL_SECONDS = 0.01

_LOCK: Transition[LockAnswer] = Transition("lock", LockAnswer)
_RELY: Transition[RelyAnswer] = Transition("rely", RelyAnswer)
_UNLOCK: Transition[UnlockAnswer] = Transition("unlock", UnlockAnswer, repeated=(NotHeld, Unlocked))


class ObjectLocks:
    """Takes and frees the locks of objects.  The script that ends a task frees its lock too.

    Two tasks never hold one object at once.  A lock whose record is gone keeps nobody out: both are
    on one server, which cannot lose one without the other.  So a lock needs no expiry.  The
    exception is a lock that is kept after a success: it outlives the record, and expires.
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
            answer = self._caller.call(
                _LOCK,
                [
                    self._keys.lock(object_key),
                    self._keys.record(claim.task_id),
                    self._keys.record(holder),
                    self._keys.lock(own) if own else self._keys.none,
                ],
                [claim.task_id, claim.attempt, seen, claim.token, object_key, own],
                patience_seconds,
            )
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
                    before, seen, holder = seen, answer.value, answer.task_id
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
        """Free an object whose attempt is over, but whose task goes on.

        Returns False if *claim* does not hold it.
        """
        step = Step(
            _UNLOCK,
            [self._keys.lock(object_key), self._keys.record(claim.task_id)],
            [claim.task_id, claim.attempt, claim.token, object_key],
        )
        answer = run_freeing(
            self._caller,
            self._keys,
            step,
            object_key,
            self._ledger.on_next,
            patience_seconds,
            has_line=claim.has_line,
            next_up=claim.next_up,
        )
        return isinstance(answer, Unlocked)
