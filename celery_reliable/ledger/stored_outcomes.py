"""Transitions that store an outcome which is not settled in the same step."""

from __future__ import annotations

from celery_reliable.ledger.answers import ConcludeAnswer, StoreAnswer
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import Transition
from celery_reliable.model import Claim, DeadLetter, StoredResult

__all__ = ["StoredOutcomes"]

_STORE: Transition[StoreAnswer] = Transition("store", StoreAnswer)
_CONCLUDE: Transition[ConcludeAnswer] = Transition("conclude", ConcludeAnswer)


class StoredOutcomes(TransitionGroup):
    """What is known of an outcome before the attempt has ended."""

    def store(
        self,
        claim: Claim,
        result: StoredResult,
        *,
        is_retried: bool = False,
        patience_seconds: float | None = None,
    ) -> StoreAnswer:
        """Store the outcome of an attempt that is settled later, if it is the current one.

        *is_retried*: it has published itself again instead, and has no claim any more.  Then this
        is stored as long as its successor has not begun.
        """
        after = "retry" if is_retried else ""
        task_id, attempt, token = claim.task_id, claim.attempt, claim.token
        return self._store(task_id, attempt, token, result, after, patience_seconds)

    def store_buried(self, letter: DeadLetter, result: StoredResult) -> StoreAnswer:
        """Store the failure of a dead letter, if it is still the same one: it may have been
        replayed, and have died again.
        """
        task_id, attempt, token = letter.task_id, letter.attempts, str(letter.buried_ms)
        return self._store(task_id, attempt, token, result, "burial", 0)

    def _store(
        self,
        task_id: str,
        attempt: int,
        token: str,
        result: StoredResult,
        after: str,
        patience_seconds: float | None,
    ) -> StoreAnswer:
        return self._caller.call(
            _STORE,
            [self.keys.record(task_id), result.key],
            [
                attempt,
                token,
                result.value,
                result.final,
                result.expires_seconds,
                "" if result.db == self.connector.db else result.db,
                self.connector.db,
                after,
            ],
            patience_seconds,
        )

    def conclude(self, claim: Claim, *, patience_seconds: float | None = None) -> ConcludeAnswer:
        """Note that the outcome of a unique task's attempt is about to be stored.

        From then on a call of that task waits until the attempt has ended: its caller may have
        seen the outcome already.
        """
        return self._caller.call(
            _CONCLUDE,
            [self.keys.record(claim.task_id)],
            [claim.attempt, claim.token],
            patience_seconds,
        )
