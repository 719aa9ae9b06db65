"""The places of objects, as many as tasks may have one at once, and the line of those that wait."""

from __future__ import annotations

from celery_reliable.ledger.answers import PlaceAnswer, UnlockAnswer
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import Step
from celery_reliable.model import Claim, ClaimRequest, Room

__all__ = ["Places"]


class Places(TransitionGroup):
    """How tasks get a place of an object, and wait for one.

    A place is a lock, and an object that one task has at a time has one place.  It is held by a
    record, and freed by the script that ends its task, so it needs no expiry.  One whose record is
    gone keeps nobody out: both are on one server, which cannot lose one without the other.  The
    exception is an object that is kept after a success: that outlives the record, and expires.
    """

    def take_place(
        self,
        room: Room,
        claim: Claim,
        *,
        due_in_ms: int,
        stands: bool = False,
        queue: str = "",
        patience_seconds: float | None = None,
    ) -> PlaceAnswer:
        """Take a place of an object for an attempt that has not begun its body.

        Without one it is Full; or the attempt ends without a trace, and its task is Standing in the
        line (*stands*).  Who is first there is looked at in *due_in_ms*.  *queue*: a list on this
        server, into which the message may be put as it is, when its turn has come.
        """
        step = self.calls.place(
            id=claim.task_id,
            object=room.object_key,
            places=room.places,
            is_own=room.is_own,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            stands=stands,
            due_in_ms=due_in_ms,
            list=queue,
        )
        return self._caller.run(step, patience_seconds)

    def step_behind(
        self, request: ClaimRequest, room: Room, *, due_in_ms: int
    ) -> Step[PlaceAnswer]:
        """Return the call by which an attempt takes its place in the very step that begins it.

        Without a place the attempt asks again, by `take_place`.
        """
        return self.calls.place(
            id=request.task.id,
            object=room.object_key,
            places=room.places,
            is_own=room.is_own,
            token=request.token,
            worker=request.worker,
            due_in_ms=due_in_ms,
        )

    def free_place(
        self, object_key: str, claim: Claim, *, patience_seconds: float | None = None
    ) -> UnlockAnswer:
        """Free the place of an attempt that is over, but whose task goes on."""
        step = self.calls.unlock(
            id=claim.task_id, attempt=claim.attempt, token=claim.token, object=object_key
        )
        return self._caller.run(step, patience_seconds)
