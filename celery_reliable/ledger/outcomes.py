"""Transitions that end an attempt or a task: with an outcome, a loss or a burial, or called off."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from celery_reliable.leases import Verdict
from celery_reliable.ledger.answers import (
    AnnounceAnswer,
    Answer,
    BuryAnswer,
    CancelAnswer,
    Gone,
    LoseAnswer,
    ReplaceAnswer,
    SettleAnswer,
    Stale,
    StoreAnswer,
    Troubled,
)
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.transitions import Step, as_one, encoded
from celery_reliable.model import Cause, Claim, DeadLetter, Reason, StoredResult

__all__ = ["Outcomes", "kind_of_death"]

A = TypeVar("A", bound=Answer)

#: When the sweeper looks whether a called-off attempt was stopped; usually its worker has told.
_STOPPING_LOOK_MS = 10_000
#: In the place of an epoch: what was called off has none.
_CALLED_OFF = "stop"
_NO_RESULT = StoredResult("", "", "", 0, 0)
_OF_DEATH = re.compile(r"signal \d+ \((SIG\w{1,20})\)|exitcode (-?\d{1,10})|out of memory")
_KIND = re.compile(r"[\w.]{1,200}")


def _kind_of(exception: str) -> str:
    """Return the name of an exception's type, from its one line; empty where that has none."""
    found = _KIND.fullmatch(exception.partition(":")[0])
    return found[0] if found else ""


def kind_of_death(cause: Cause, detail: str) -> str:
    """Return what deaths of one kind have in common: "child_lost, SIGKILL, out of memory".

    *detail* is written for people: "signal 9 (SIGKILL), pid 7, out of memory".
    """
    # Without an outcome it is an exception's text, in which anything may stand.
    told = "" if cause is Cause.NO_OUTCOME else detail.partition(";")[0]
    found = (_OF_DEATH.fullmatch(part.strip()) for part in told.split(","))
    names = [one[1] or (f"exit code {one[2]}" if one[2] else one[0]) for one in found if one]
    return ", ".join([cause.value, *names])


def _as_death(verdict: Verdict | None) -> str:
    """Return how the script counts a worker's death: "2" if a suspect was found, "1" if not; empty
    for no death.
    """
    if verdict is None:
        return ""
    return "2" if verdict.names_suspect else "1"


class Outcomes(Part):
    """How an attempt ends, leaves its id to a canvas, or becomes a dead letter; what is done with
    one; and how a task that nobody runs is called off.
    """

    connector: Connector
    #: How many tasks that have ended are kept.
    keep_ended: int
    #: One in so many is kept though nothing happened to it; 0: none.
    sample_one_in: int

    def _end(
        self,
        make: Callable[..., Step[A]],
        task_id: str,
        outcome: str,
        by: str,
        *,
        is_kept: bool = False,
        along: Step[Any] | None = None,
        patience_seconds: float | None = None,
    ) -> A:
        """Run a script that ends a task, and keeps for people what happened to it.

        *make* returns the call.  Most tasks have no history.  Of these the script is not told what
        to note, so that they pay nothing for it.  A script that was not told, and finds a history,
        changes nothing and answers Troubled, and is called again.  *along*: a step that goes along
        with the first call.
        """
        one_in = self.sample_one_in
        is_kept = is_kept or (one_in > 0 and zlib.crc32(encoded(task_id)) % one_in == 0)
        about: dict[str, Any] = {"outcome": outcome, "by": by, "most": self.keep_ended}
        step = make(**about) if is_kept else make()
        answer = self._caller.run(step if along is None else as_one(step, along), patience_seconds)
        if isinstance(answer, Troubled):
            answer = self._caller.run(make(**about), patience_seconds)
        return answer

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
        make = partial(
            self.calls.settle,
            id=claim.task_id,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            keep_ms=keep_ms,
            places=claim.places,
            **self._arguments(result or _NO_RESULT),
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
            death=kind_of_death(cause, detail),
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

    def store(
        self,
        of: Claim | DeadLetter,
        result: StoredResult,
        *,
        is_retried: bool = False,
        patience_seconds: float | None = None,
    ) -> StoreAnswer:
        """Store the outcome of an attempt that is settled later, if it is the current one; or the
        failure of a dead letter, if it is still the same one: it may have been replayed, and have
        died again.

        *is_retried*: the attempt has published itself again instead, and has no claim any more.
        Then this is stored as long as its successor has not begun.
        """
        if isinstance(of, DeadLetter):
            attempt, token, after = of.attempts, str(of.buried_ms), "burial"
        else:
            attempt, token, after = of.attempt, of.token, "retry" if is_retried else ""
        step = self.calls.store(
            id=of.task_id, attempt=attempt, token=token, after=after, **self._arguments(result)
        )
        return self._caller.run(step, patience_seconds)

    def _arguments(self, result: StoredResult) -> dict[str, Any]:
        """Return the arguments of a script that stores a result.  The database is left out if it is
        the ledger's own, which the script need not select.
        """
        return {
            "result": result.key,
            "value": result.value,
            "final": result.final,
            "expires_seconds": result.expires_seconds,
            "db": None if result.db == self.connector.db else result.db,
            "own_db": self.connector.db,
        }

    def bury(
        self,
        claim: Claim,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        is_owed: bool = False,
        patience_seconds: float | None = None,
    ) -> BuryAnswer:
        """End an attempt as a dead letter, and free its object.

        *is_owed*: Celery has not been told of the failure yet; the sweeper sees to it.
        """
        step = self.calls.bury(
            id=claim.task_id,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            reason=reason.value,
            exception=exception,
            kind=_kind_of(exception),
            traceback=traceback,
            owed=is_owed,
        )
        return self._caller.run(step, patience_seconds)

    def bury_message(
        self,
        task_id: str,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        message: str,
        name: str,
        epoch: str = "",
        is_unproved: bool = True,
        patience_seconds: float | None = None,
    ) -> BuryAnswer:
        """Make a dead letter of a message that no worker can run, unless it is a late copy.

        *epoch*: that of the message.  *is_unproved*: a missing record does not prove that the task
        has ended.  Without it the answer is then Unrecorded, and `has_ended` tells.
        """
        step = self.calls.bury(
            id=task_id,
            worker="",
            reason=reason.value,
            exception=exception,
            kind=_kind_of(exception),
            traceback=traceback,
            message=message,
            name=name,
            epoch=epoch,
            unproved=is_unproved,
        )
        return self._caller.run(step, patience_seconds)

    def announce(
        self, letter: DeadLetter, reader: str = "", *, is_over: bool = False
    ) -> AnnounceAnswer:
        """Note that Celery has been told of a burial; with a *reader*, that it is about to read the
        dead letter's message.

        *is_over*: it has read it, and lives.  The answer is Sealed if an earlier reader died of it.
        """
        return self._caller.run(
            self.calls.announce(
                id=letter.task_id, buried_ms=letter.buried_ms, reader=reader, is_over=is_over
            )
        )

    def cancel(
        self,
        task_id: str,
        *,
        epoch: str,
        if_running: str = "",
        outcome: str = "REVOKED",
        by: str = "",
        is_kept: bool = False,
        patience_seconds: float | None = None,
    ) -> CancelAnswer:
        """Call off a publication that nobody runs, and free its object.

        If a worker has still to stop an attempt of it, the record and the lock stay until it has.
        *if_running*: "finish" marks a task that runs, so that it does not run again; "stop" and
        "kill" also tell its worker to end the attempt.  *outcome* and *by*: as `settle`; *is_kept*:
        that is kept, even of a task to which nothing happened.
        """
        make = partial(
            self.calls.cancel,
            id=task_id,
            seen=epoch,
            due_in_ms=_STOPPING_LOOK_MS,
            if_running=if_running,
        )
        return self._end(
            make, task_id, outcome, by, is_kept=is_kept, patience_seconds=patience_seconds
        )

    def revoke(
        self,
        task_id: str,
        *,
        if_running: str = "",
        by: str = "",
        is_kept: bool = False,
        patience_seconds: float | None = None,
    ) -> CancelAnswer:
        """Call off the current publication of an id: a retry and the last member of a canvas are
        other publications than the first.

        *if_running*, *by* and *is_kept*: as `cancel`.  What is published after this has returned is
        never called off, even if a command arrives late.
        """
        key = encoded(self.keys.record(task_id))
        while True:
            ((epoch, waiting_for),) = self._caller.read_all(
                "find", [("HMGET", key, "epoch", "waiting_for")], patience_seconds
            )
            if waiting_for == _CALLED_OFF.encode():
                return Gone()
            answer = self.cancel(
                task_id,
                epoch=(epoch or b"").decode(),
                if_running=if_running,
                by=by,
                is_kept=is_kept,
                patience_seconds=patience_seconds,
            )
            if not isinstance(answer, Stale):
                return answer

    def let_go(self, task_id: str) -> CancelAnswer:
        """Remove the record of a task that was called off, and of which nothing runs any more.

        If the id was published again meanwhile, nothing is changed.
        """
        return self.cancel(task_id, epoch=_CALLED_OFF)

    def withdraw(
        self, task_id: str, epoch: str, *, patience_seconds: float | None = None
    ) -> CancelAnswer:
        """Take back a publication whose message could not be sent, unless somebody has claimed it,
        or a call was answered with it.
        """
        step = self.calls.cancel(
            id=task_id, seen=epoch, is_unsent=True, due_in_ms=_STOPPING_LOOK_MS
        )
        return self._caller.run(step, patience_seconds)

    def discard(
        self,
        task_id: str,
        *,
        buried_ms: int | None = None,
        by: str = "",
        outcome: str = "DISCARDED",
        is_surplus: bool = False,
    ) -> CancelAnswer:
        """Remove a dead letter for good.  *buried_ms*: only if it was buried at this time.

        *by*: the operator, or the reason, for those who ask later.  *is_surplus*: there are too
        many letters; `passes.meta` counts those that went for that.
        """
        step = self.calls.cancel(
            id=task_id,
            seen="" if buried_ms is None else str(buried_ms),
            is_letter=True,
            is_surplus=is_surplus,
            due_in_ms=_STOPPING_LOOK_MS,
            outcome=outcome,
            by=by,
            most=self.keep_ended,
        )
        return self._caller.run(step)
