"""Transitions that make dead letters, and those that replay or read them."""

from __future__ import annotations

import re
from functools import partial

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger.answers import (
    AnnounceAnswer,
    BlameAnswer,
    BuryAnswer,
    CancelAnswer,
    Gone,
    Stale,
)
from celery_reliable.ledger.groups import Death
from celery_reliable.ledger.transition_group import (
    STOPPING_LOOK_MS,
    TransitionGroup,
)
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import Claim, DeadLetter, Reason

__all__ = [
    "Burials",
    "Cancellations",
]


_KIND = re.compile(r"[\w.]{1,200}")


def _kind_of(exception: str) -> str:
    """Return the name of an exception's type, from its one line; empty where that has none."""
    found = _KIND.fullmatch(exception.partition(":")[0])
    return found[0] if found else ""


class Burials(TransitionGroup):
    """How a task becomes a dead letter, and what is done with one."""

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

    def blame(
        self,
        lease: WorkerLease,
        cause: str,
        *,
        max_losses: int,
        due_in_ms: int,
    ) -> BlameAnswer:
        """Count a loss of the task whose message a dead worker was opening.

        The task stays queued, or is buried after *max_losses*.  The loss is only noted if the
        worker may have died of something that it ran; the next death that is clear counts for both.
        """
        step = self.calls.blame(
            id=lease.opening_id,
            epoch=lease.opening_epoch,
            worker=lease.worker,
            max_losses=max_losses,
            due_in_ms=due_in_ms,
            cause=cause,
            death=str(Death.of(cause)),
            is_counted=lease.verdict.is_opening,
        )
        return self._caller.run(step)

    def read(self, letter: DeadLetter, reader: str, *, is_over: bool = False) -> AnnounceAnswer:
        """Note that *reader* is about to read a dead letter's message.

        *is_over*: it has read it, and lives.  The answer is Sealed if an earlier reader died of it.
        """
        return self._caller.run(
            self.calls.announce(
                id=letter.task_id, buried_ms=letter.buried_ms, reader=reader, is_over=is_over
            )
        )

    def announced(self, task_id: str, buried_ms: int) -> AnnounceAnswer:
        """Note that Celery has been told of the burial."""
        return self._caller.run(self.calls.announce(id=task_id, buried_ms=buried_ms))


#: In the place of an epoch: what was called off has none.
_CALLED_OFF = "stop"


class Cancellations(TransitionGroup):
    """How a task that nobody runs is called off, and a dead letter discarded."""

    def cancel(
        self,
        task_id: str,
        *,
        epoch: str,
        is_revoked: bool = False,
        outcome: str = "REVOKED",
        by: str = "",
        is_kept: bool = False,
        patience_seconds: float | None = None,
    ) -> CancelAnswer:
        """Call off a publication that nobody runs, and free its object.

        If a worker has still to stop an attempt of it, the record and the lock stay until it has.
        *is_revoked*: a task that runs is marked, so that it does not run again.
        *outcome* and *by*: as `Outcomes.settle`; *is_kept*: that is kept, even of a task to which
        nothing happened.
        """
        make = partial(
            self.calls.cancel,
            id=task_id,
            seen=epoch,
            due_in_ms=STOPPING_LOOK_MS,
            is_revoked=is_revoked,
        )
        return self._end(
            make, task_id, outcome, by, is_kept=is_kept, patience_seconds=patience_seconds
        )

    def revoke(
        self,
        task_id: str,
        *,
        is_noted: bool = False,
        by: str = "",
        is_kept: bool = False,
        patience_seconds: float | None = None,
    ) -> CancelAnswer:
        """Call off the current publication of an id: a retry and the last member of a canvas are
        other publications than the first.

        *is_noted*: a task that runs is marked, so that it does not run again.  *by* and *is_kept*:
        as `cancel`.  What is published after this has returned is never called off, even if a
        command arrives late.
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
                is_revoked=is_noted,
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
        step = self.calls.cancel(id=task_id, seen=epoch, is_unsent=True, due_in_ms=STOPPING_LOOK_MS)
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
            due_in_ms=STOPPING_LOOK_MS,
            outcome=outcome,
            by=by,
            most=self.keep_ended,
        )
        return self._caller.run(step)
