"""The places of objects, as many as tasks may have one at once, and the line of those that wait."""

from __future__ import annotations

import time
from collections.abc import Sequence

from celery_reliable.ledger.answers import (
    Concluding,
    Exists,
    Full,
    Next,
    OwnPlace,
    PlaceAnswer,
    StillStopping,
    Unlocked,
)
from celery_reliable.ledger.transition_group import (
    TransitionGroup,
    call_up_step,
    place_step,
    run_freeing,
)
from celery_reliable.ledger.transitions import Step
from celery_reliable.model import Claim, ClaimRequest, Room

__all__ = ["Places", "in_the_way"]

#: How long a call waits for a task whose outcome is being stored.  Usually its hooks still run.
_CONCLUDING_SECONDS = 2.0
_CONCLUDING_POLL_SECONDS = 0.01


def in_the_way(full: Full) -> str:
    """Return the id of one that has a place, or stands in the line before who asked."""
    held = next(filter(None, full.values.split("\n")), "")
    return full.before.partition("\n")[0] or held.partition(":")[2]


class Places(TransitionGroup):
    """How tasks get a place of an object, and wait for one.

    A place is a lock, and an object that one task has at a time has one place.  It is held by a
    record, and freed by the script that ends its task, so it needs no expiry.  One whose record is
    gone keeps nobody out: both are on one server, which cannot lose one without the other.  The
    exception is an object that is kept after a success: that outlives the record, and expires.
    """

    def take_place(
        self,
        object_key: str,
        places: int,
        claim: Claim,
        *,
        due_in_ms: int,
        stands: bool = False,
        queue: str = "",
        patience_seconds: float | None = None,
    ) -> PlaceAnswer:
        """Take one of the *places* of an object for an attempt that has not begun its body.

        Without one it is Full; or the attempt ends without a trace, and its task is Standing in the
        line (*stands*).  Who is first there is looked at in *due_in_ms*.  *queue*: a list on this
        server, into which the message may be put as it is, when its turn has come.
        """

        own = ""

        def step(is_new: bool, seen: Sequence[str]) -> Step[PlaceAnswer]:
            return place_step(
                self.calls,
                object_key,
                places,
                claim.task_id,
                claim.token,
                due_in_ms,
                attempt=claim.attempt,
                worker=claim.worker,
                is_new=is_new,
                seen=seen,
                queue=queue,
                own=own,
            )

        answer = self._caller.run(step(False, ()), patience_seconds)
        if isinstance(answer, OwnPlace):
            own = answer.object_key
            answer = self._caller.run(step(False, ()), patience_seconds)
        while isinstance(answer, Full):
            seen = answer.values.split("\n")
            answer = self._caller.run(step(stands, seen), patience_seconds)
            if not isinstance(answer, StillStopping):
                break
            if not self.is_outlived(
                answer.task_id, answer.worker, patience_seconds=patience_seconds
            ):
                # What still runs has the place, as the record of a living task would.
                seen = [one if not one.endswith(f":{answer.task_id}") else "" for one in seen]
                answer = self._caller.run(step(stands, seen), patience_seconds)
                break
            answer = self._caller.run(step(False, ()), patience_seconds)
        return answer

    def step_behind(
        self, request: ClaimRequest, room: Room, *, due_in_ms: int
    ) -> Step[PlaceAnswer]:
        """Return the call by which an attempt takes its place in the very step that begins it.

        Without a place it has changed nothing: the attempt asks again, by `take_place`.
        """
        return place_step(
            self.calls,
            room.object_key,
            room.places,
            request.task.id,
            request.token,
            due_in_ms,
            attempt=None,
            worker=request.worker,
        )

    def step_up(
        self, object_key: str, places: int, task_id: str, epoch: str, *, due_in_ms: int
    ) -> PlaceAnswer:
        """Give a task that stands in the line its place if it is its turn: then it is to be sent.

        The answer is Full if it is not, and NotCurrent if it does not stand there any more.
        """
        seen: Sequence[str] = ()
        answer: PlaceAnswer = Full("", "")
        for _ in range(2):
            step = place_step(self.calls, object_key, places, task_id, epoch, due_in_ms, seen=seen)
            answer = self._caller.run(step)
            if isinstance(answer, StillStopping):
                self.is_outlived(answer.task_id, answer.worker)
                return Full("", "")
            if not isinstance(answer, Full):
                break
            seen = answer.values.split("\n")
        return answer

    def next_in_line(self, object_key: str) -> str:
        """Return who stands first in the line of an object that is free; empty for nobody."""
        step = call_up_step(self.calls, object_key)
        answer = self._caller.run(step)
        return answer.task_id if isinstance(answer, Next) else ""

    def publication_step(
        self,
        object_key: str,
        places: int,
        task_id: str,
        epoch: str,
        *,
        due_in_ms: int,
        queue: str = "",
    ) -> Step[PlaceAnswer]:
        """Return the call that gives what has just been recorded as parked a place, or has it stand
        in the line.

        With a place it is to be sent, or it is put into *queue*.
        """
        return place_step(
            self.calls, object_key, places, task_id, epoch, due_in_ms, is_new=True, queue=queue
        )

    def rely(self, holder: str, *, patience_seconds: float | None = None) -> bool:
        """Whether a unique call is to be answered with *holder*, who has its object: what has been
        returned to a call cannot be withdrawn any more.

        Waits for a holder whose outcome is being stored, two seconds at the most.
        """
        deadline = time.monotonic() + _CONCLUDING_SECONDS
        while True:
            waited = time.monotonic() >= deadline
            answer = self._caller.run(self.calls.rely(id=holder, waited=waited), patience_seconds)
            if not isinstance(answer, Concluding):
                return isinstance(answer, Exists)
            time.sleep(_CONCLUDING_POLL_SECONDS)

    def free_place(
        self, object_key: str, claim: Claim, *, patience_seconds: float | None = None
    ) -> bool:
        """Free the place of an attempt that is over, but whose task goes on.

        Returns False if *claim* does not hold it.
        """
        step = self.calls.unlock(
            id=claim.task_id, attempt=claim.attempt, token=claim.token, object=object_key
        )
        answer = run_freeing(
            self._caller,
            self.calls,
            step,
            object_key,
            self.on_next,
            patience_seconds,
            has_line=claim.has_line,
            next_up=claim.next_up,
        )
        return isinstance(answer, Unlocked)
