"""The transitions by which attempts end, but for their burials."""

from __future__ import annotations

import json
from collections.abc import Sequence

from celery_reliable.ledger.answers import (
    BequeathAnswer,
    ConcludeAnswer,
    LoseAnswer,
    ReleaseAnswer,
    ReplaceAnswer,
    SettleAnswer,
)
from celery_reliable.ledger.answers.tasks import Gone, Settled, Waiting
from celery_reliable.ledger.lock_release import call_freeing_lock
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import Transition
from celery_reliable.model import Cause, Claim, StoredResult, Verdict

__all__ = ["Outcomes"]

_NO_RESULT = StoredResult("", "", "", 0, 0)

_SETTLE: Transition[SettleAnswer] = Transition(
    "settle", SettleAnswer, repeated=(Gone, Settled), frees=True
)
_CONCLUDE: Transition[ConcludeAnswer] = Transition("conclude", ConcludeAnswer)
_BEQUEATH: Transition[BequeathAnswer] = Transition("bequeath", BequeathAnswer)
_REPLACE: Transition[ReplaceAnswer] = Transition("replace", ReplaceAnswer, repeated=(Gone, Waiting))
_LOSE: Transition[LoseAnswer] = Transition("lose", LoseAnswer, frees=True)
_RELEASE: Transition[ReleaseAnswer] = Transition("release", ReleaseAnswer)


class Outcomes(TransitionGroup):
    """How an attempt ends, or leaves its id to a canvas."""

    def settle(
        self,
        claim: Claim,
        result: StoredResult | None = None,
        *,
        keep_ms: int = 0,
        patience_seconds: float | None = None,
    ) -> SettleAnswer:
        """Report that the attempt has an outcome: which Celery has stored, or *result*, which is
        stored in the same step, as the object is freed; or kept locked for *keep_ms* by the
        server's clock, after a success of what is done once.
        """
        result = result or _NO_RESULT
        return call_freeing_lock(
            self._caller,
            self.keys,
            _SETTLE,
            [
                self.keys.record(claim.task_id),
                self.keys.due,
                self.keys.claims(claim.worker),
                result.key or self.keys.none,
            ],
            [
                claim.task_id,
                claim.attempt,
                claim.token,
                result.value,
                result.final,
                result.expires_seconds,
                "" if result.db == self.connector.db else result.db,
                self.connector.db,
                keep_ms,
            ],
            object_key=claim.object_key,
            patience_seconds=patience_seconds,
        )

    def conclude(self, claim: Claim, *, patience_seconds: float | None = None) -> ConcludeAnswer:
        """Note that the outcome of an attempt, whose object calls are answered with, is about to be
        stored.
        """
        return self._caller.call(
            _CONCLUDE,
            [self.keys.record(claim.task_id)],
            [claim.attempt, claim.token],
            patience_seconds,
        )

    def bequeath(
        self, claim: Claim, *, heir: str, patience_seconds: float | None = None
    ) -> BequeathAnswer:
        """Let the last member of a canvas that is about to be published take the id over: what is
        published as *heir*.
        """
        return self._caller.call(
            _BEQUEATH,
            [self.keys.record(claim.task_id)],
            [claim.attempt, claim.token, heir],
            patience_seconds,
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
        """Keep the record waiting for its own id, which a canvas will publish last.  *stored*: the
        result that is there of a task that had the id before.  *members*: ids of the canvas.
        """
        return self._caller.call(
            _REPLACE,
            [self.keys.record(claim.task_id), self.keys.due, self.keys.claims(claim.worker)],
            [
                claim.task_id,
                claim.attempt,
                due_in_ms,
                claim.token,
                stored,
                json.dumps(list(members)),
            ],
            patience_seconds,
        )

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
        """Count a loss: back to queued, or buried, and the object freed, when the budget is spent.

        *due_ms*: only if that is still when it is due.  *is_unsent*: no message of it comes back to
        its queue.  *verdict*: on its worker's death, with which it was lost; where that does not
        charge it the task is queued in any case, and after the second such death it is a suspect,
        which runs in a worker that runs no other one.  *detail*: of the cause, for people.
        """
        return call_freeing_lock(
            self._caller,
            self.keys,
            _LOSE,
            [
                self.keys.record(claim.task_id),
                self.keys.due,
                self.keys.claims(claim.worker),
                self.keys.taken(claim.worker),
                self.keys.dead,
            ],
            [
                claim.task_id,
                claim.attempt,
                cause.value,
                max_losses,
                due_in_ms,
                claim.token,
                int(is_taken),
                due_ms,
                int(is_unsent),
                "1" if verdict is None or verdict.charges(claim.task_id) else "",
                _as_death(verdict),
                detail,
            ],
            object_key=claim.object_key,
            patience_seconds=patience_seconds,
        )

    def release(
        self,
        claim: Claim,
        *,
        due_in_ms: int,
        is_unsent: bool = False,
        patience_seconds: float | None = None,
    ) -> ReleaseAnswer:
        """End an attempt whose worker is stopped on purpose; no loss is counted.  *is_unsent*: no
        message of it comes back to its queue.
        """
        return self._caller.call(
            _RELEASE,
            [self.keys.record(claim.task_id), self.keys.due, self.keys.claims(claim.worker)],
            [claim.task_id, claim.attempt, due_in_ms, claim.token, int(is_unsent)],
            patience_seconds,
        )


def _as_death(verdict: Verdict | None) -> str:
    """Return what the script wants to know of the worker's death; empty for none that concerns what
    it ran.
    """
    if verdict is None or verdict.is_opening:
        return ""
    return "2" if verdict.names_suspect else "1"
