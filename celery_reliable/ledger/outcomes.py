"""Transitions that end an attempt.  Those that end it as a dead letter are in `burials`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from celery_reliable.leases import Verdict
from celery_reliable.ledger.answers import (
    LoseAnswer,
    ReplaceAnswer,
    SettleAnswer,
    StoreAnswer,
)
from celery_reliable.ledger.groups import Death
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import Step
from celery_reliable.model import Cause, Claim, DeadLetter, StoredResult

__all__ = [
    "Outcomes",
    "StoredOutcomes",
]

_NO_RESULT = StoredResult("", "", "", 0, 0)


class Outcomes(TransitionGroup):
    """How an attempt ends, or leaves its id to a canvas."""

    def settle(
        self,
        claim: Claim,
        result: StoredResult | None = None,
        *,
        outcome: str = "",
        by: str = "",
        keep_ms: int = 0,
        along: Step[Any] | None = None,
        patience_seconds: float | None = None,
    ) -> SettleAnswer:
        """End an attempt that has an outcome.  Its record is removed, and its object is freed.

        *result* is stored in the same step; None when Celery has stored the outcome already.  With
        *keep_ms* (milliseconds of the server's clock) the object is not freed but stays locked for
        so long: the task succeeded, and is to be done once.

        *outcome* (a state of Celery's) and *by* (who ended it, and why) are kept for operators.
        *along*: a step that goes along, and hears its own answer.
        """
        result = result or _NO_RESULT
        make = partial(
            self.calls.settle,
            id=claim.task_id,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            result=result.key,
            value=result.value,
            final=result.final,
            expires_seconds=result.expires_seconds,
            db=None if result.db == self.connector.db else result.db,
            own_db=self.connector.db,
            keep_ms=keep_ms,
            places=claim.places,
        )
        return self._end(
            make,
            claim.task_id,
            outcome,
            by,
            is_kept=claim.is_troubled,
            along=along,
            patience_seconds=patience_seconds,
        )

    def replace(
        self,
        claim: Claim,
        *,
        due_in_ms: int,
        stored: str = "",
        members: Sequence[str] = (),
        patience_seconds: float | None = None,
    ) -> ReplaceAnswer:
        """End an attempt that became a canvas.  The record waits until the canvas publishes its id.

        *due_in_ms*: when somebody looks at the record at the latest.  *stored*: names the result
        that an earlier task of the same id has left, or is empty.  *members*: the canvas's ids.
        """
        step = self.calls.replace(
            id=claim.task_id,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            due_in_ms=due_in_ms,
            stored=stored,
            members=json.dumps(list(members)),
        )
        return self._caller.run(step, patience_seconds)

    def lose(
        self,
        claim: Claim,
        cause: Cause,
        *,
        max_losses: int,
        due_in_ms: int,
        is_taken: bool = False,
        due_ms: str = "",
        is_unsent: bool = False,
        verdict: Verdict | None = None,
        detail: str = "",
        patience_seconds: float | None = None,
    ) -> LoseAnswer:
        """Count a loss: the task is queued again, or after *max_losses* buried and its lock freed.

        *due_in_ms*: when somebody looks at the queued record.  *is_taken*: the worker may still run
        the attempt, and has to stop it.  *due_ms*: nothing is done unless the record is due at this
        time.  *is_unsent*: no message of the task comes back to its queue.  *verdict*: what the
        death of its worker was put down to; if not to this task, it is queued in any case, and is a
        suspect from its second such death on.  *detail*: more about the cause, for people.
        """
        step = self.calls.lose(
            id=claim.task_id,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            cause=cause.value,
            detail=detail,
            death=str(Death.of(f"{cause.value}: {detail}")),
            max_losses=max_losses,
            due_in_ms=due_in_ms,
            due_ms=due_ms,
            is_taken=is_taken,
            is_unsent=is_unsent,
            is_counted=verdict is None or verdict.charges(claim.task_id),
            is_death=_as_death(verdict),
        )
        return self._caller.run(step, patience_seconds)

    def release(
        self,
        claim: Claim,
        *,
        due_in_ms: int,
        is_unsent: bool = False,
        patience_seconds: float | None = None,
    ) -> LoseAnswer:
        """Queue again a task whose worker is stopped on purpose.  No loss is counted.

        *due_in_ms*: when somebody looks at the record.  *is_unsent*: no message of the task comes
        back to its queue.
        """
        step = self.calls.lose(
            id=claim.task_id,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            max_losses=0,
            due_in_ms=due_in_ms,
            is_unsent=is_unsent,
        )
        return self._caller.run(step, patience_seconds)


def _as_death(verdict: Verdict | None) -> str:
    """Return how the script counts a worker's death: "2" if a suspect was found, "1" if not.

    Empty when the death has nothing to do with what the worker ran.
    """
    if verdict is None or verdict.is_opening:
        return ""
    return "2" if verdict.names_suspect else "1"


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
        step = self.calls.store(
            id=task_id,
            attempt=attempt,
            token=token,
            result=result.key,
            value=result.value,
            final=result.final,
            expires_seconds=result.expires_seconds,
            db=None if result.db == self.connector.db else result.db,
            own_db=self.connector.db,
            after=after,
        )
        return self._caller.run(step, patience_seconds)
