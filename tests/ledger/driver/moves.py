"""Moves in a world: who says of tasks that live which workers may run them, and whether only those
do.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from celery_reliable.app import reliable_of
from celery_reliable.operations.task_acts import Moves as Act

if TYPE_CHECKING:
    from tests.ledger.driver.facts import Body, Call

#: Every other worker, by its name, and those between.
ODD, EVEN = "celery@w*[13579]", "celery@w*[02468]"
_NOT_YET = float("inf")
_ENDED = ("done", "Broken", "NotRegistered")


@dataclass(eq=False)
class Move:
    """One act of an operator.  Times are the truth, in ms."""

    task_id: str
    #: Whose names match may run it; empty: any worker.
    only: str
    began_ms: float
    answered_ms: float = _NOT_YET
    #: What the operator was told: empty, unless it was moved.
    fate: str = ""

    def allows(self, node: str) -> bool:
        return not self.only or fnmatchcase(node, self.only)

    def __str__(self) -> str:
        return f"moved to {self.only or 'any worker'} at {self.began_ms / 1000:.3f}"


class Moves:
    """The moves of one world, as their operators know them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self._made: list[Move] = []

    # -- operators

    def act(self) -> None:
        """Somebody says who may run a task from now on."""
        world, choice = self.world, self.world.choice
        about = {one.task_id for one in self._made if one.answered_ms == _NOT_YET}
        known = sorted({one.task_id for one in world.observer.calls.values()} - about)
        if not known:
            return
        task_id = choice.choice(known)
        # A member of a run may wait for ever, if another has the one worker that is left to it.
        only = "" if world.naming.is_of_run(task_id) else choice.choice((ODD, EVEN, EVEN, ""))
        move = Move(task_id, only, world.schedule.now_ms)
        self._made.append(move)
        world.note(f"operator: move {task_id} to {only or 'any worker'}")

        def run() -> None:
            acting = Act(world.app, reliable_of(world.app).ledger)
            try:
                found = acting.move([task_id], [only] if only else [], by="ann")
                told = [one for one in ("sent", "stopped", "stays") if getattr(found, one)]
                move.fate = "".join(told)
                world.note(f"operator: {task_id} is moved: {move.fate or 'not at all'}")
            except world.failures as exc:
                world.note(f"operator: move {task_id} ended by {exc!r:.80}")
            move.answered_ms = world.schedule.now_ms

        world.schedule.start(world.process("operator move"), "move", run)

    # -- what is promised

    def of(self, call: Call) -> list[Move]:
        """Return those that may have been about a call; the last one counts."""
        return [
            one
            for one in self._made
            if one.task_id == call.task_id and one.answered_ms >= (call.began_ms or 0.0)
        ]

    def check_begin(self, body: Body, node: str) -> str:
        """Return what is wrong with a body that begins, of a call that was moved."""
        move = self._last(body.call)
        if move is None or move.allows(node) or not self._is_current(body):
            return ""
        return f"{body.call} begins as {body}, on {node}: it was {move}"

    def check_ends(self) -> str:
        """Return what was moved, and has ended only where it ran before."""
        for call in self.world.observer.calls.values():
            move = self._last(call)
            if move is None or move.fate == "stays":
                continue
            if call.is_excused or call.replays or call.is_buried or call.members:
                continue
            ended = [one for one in call.bodies if one.how in _ENDED]
            if ended and not any(
                one.began_ms >= move.began_ms and move.allows(one.node) for one in ended
            ):
                return f"{call} was {move}, and has not ended there"
        return ""

    def _last(self, call: Call) -> Move | None:
        """Return the one that holds; None if nobody can tell: one of them is under way, or was not
        answered, or the id has had several lives.
        """
        made = self.of(call)
        if not made or not made[-1].fate or call.is_lost or call.host is not None:
            return None
        calls = self.world.observer.calls.values()
        return made[-1] if [one for one in calls if one.task_id == call.task_id] == [call] else None

    def _is_current(self, body: Body) -> bool:
        """Whether it is of the attempt that the ledger knows: another may end, and changes
        nothing.
        """
        record = self.world.observer.indexes.record(body.task_id)
        return (record.get("owner"), record.get("attempt")) == (body.worker, str(body.attempt))
