"""Transitions that begin an attempt, and those that let it go on."""

from __future__ import annotations

from celery_reliable.ledger.answers import (
    ClaimAnswer,
    EndedAnswer,
    PlaceAnswer,
    ReserveAnswer,
    TouchAnswer,
)
from celery_reliable.ledger.answers.tasks import Ended, Unrecorded
from celery_reliable.ledger.senders import sender_of
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import Step, Together, Transition
from celery_reliable.ledger.workers import ALONE_MS
from celery_reliable.model import Claim, ClaimRequest

__all__ = ["CLAIM", "Attempts"]

CLAIM: Transition[ClaimAnswer] = Transition("claim", ClaimAnswer)
_ENDED: Transition[EndedAnswer] = Transition("ended", EndedAnswer)
_TOUCH: Transition[TouchAnswer] = Transition("touch", TouchAnswer)


class Attempts(TransitionGroup):
    """How a worker begins an attempt, and asks for more time for it."""

    def claim(
        self,
        request: ClaimRequest,
        *,
        message: str = "",
        behind: Step[ReserveAnswer] | None = None,
        along: Step[PlaceAnswer] | None = None,
        patience_seconds: float | None = None,
    ) -> ClaimAnswer:
        """Begin an attempt, or return why not.

        *message*: the message as it was delivered.  Without it the answer is Unrecorded if there is
        no record and nothing proves that the task has ended; the caller asks again with it.
        *behind*: another step, which the claim follows in the same one.  *along*: one that follows
        the claim, where it follows none.  Each hears its own answer.
        """
        claim = self.claim_step(request, message=message)
        if behind is not None:
            behind.answer = self._caller.run(Together(behind, claim), patience_seconds)
            assert claim.answer is not None
            answer = claim.answer
        else:
            step = claim if along is None else Together(claim, along)
            answer = self._caller.run(step, patience_seconds)
        is_asked = isinstance(answer, Unrecorded) and bool(request.generation)
        if is_asked and self.has_ended(
            request.task.id, request.generation, request.epoch, patience_seconds=patience_seconds
        ):
            return Ended().repeated() if answer.is_repeated else Ended()
        return answer

    def has_ended(
        self,
        task_id: str,
        generation: str,
        epoch: str = "",
        *,
        patience_seconds: float | None = None,
    ) -> bool:
        """Whether a message's generation and epoch prove that its task has ended."""
        sender, number = sender_of(epoch)
        answer = self._caller.call(
            _ENDED,
            [
                self.keys.record(task_id),
                self.keys.meta,
                self.keys.sent(sender) if sender else self.keys.none,
            ],
            [generation, number],
            patience_seconds,
        )
        return isinstance(answer, Ended)

    def claim_step(self, request: ClaimRequest, *, message: str = "") -> Step[ClaimAnswer]:
        """Return the call of `claim` unsent, for a caller that sends it beside another command."""
        task, worker = request.task, request.worker
        return Step(
            CLAIM,
            [
                self.keys.record(task.id),
                self.keys.due,
                self.keys.meta,
                self.keys.worker(worker),
                self.keys.claims(worker),
                # Who knows of no strike on the task does not have them looked at.
                *([self.keys.orders, self.keys.ordered] if request.strikes else []),
            ],
            [
                task.id,
                request.epoch,
                request.generation,
                worker,
                request.token,
                request.pid,
                task.time_to_run_ms,
                task.name,
                "" if task.max_losses is None else task.max_losses,
                message,
                "" if request.is_over else ALONE_MS,
                *request.strikes,
            ],
        )

    def touch(
        self, claim: Claim, *, time_to_run_ms: int, patience_seconds: float | None = None
    ) -> TouchAnswer:
        """Give the attempt another *time_to_run_ms* from now on."""
        return self._caller.call(
            _TOUCH,
            [self.keys.record(claim.task_id), self.keys.due],
            [claim.task_id, claim.attempt, time_to_run_ms, claim.token],
            patience_seconds,
        )
