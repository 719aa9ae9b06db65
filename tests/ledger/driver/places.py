"""The places of objects in a world: whether too many have one, who takes one before whom, and who
waits though one is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery_reliable.ledger.schema import slots
from celery_reliable.options.object_id import object_key
from tests.ledger.driver import tasks

if TYPE_CHECKING:
    from tests.ledger.driver.facts import Body

#: What `Indexes` says of a task that stands in a line, before the object.
IN_LINE = "in line of "
#: In so many turns of each worker somebody has let through whose turn it is, and sent it.
_TURNS = 5
_NEVER = float("inf")


class Places:
    """Looks at the lines of one world."""

    def __init__(self, world: Any, observer: Any) -> None:
        self.world = world
        self._observer = observer
        self.is_needed = not tasks.LINED.keys().isdisjoint(world.climate.tasks)
        self._places = {
            object_key(name, place): places
            for name, places in tasks.LINED.items()
            for place in ("x", "y")
        }
        #: Since when tasks stand in a line, and when others left one.
        self._since: dict[str, float] = {}
        self._left: dict[str, float] = {}
        #: For whom nothing is done, and since which turns of the workers.
        self._idle: dict[str, dict[str, int]] = {}

    # -- bodies

    def check_begin(self, begun: Body, *, has_lost: bool, released_ms: float) -> str:
        """Return what is wrong with a body that begins: there is no place for it, or another one
        should have that.
        """
        if begun.task not in tasks.LINED:
            return ""
        is_dead = self._observer.indexes.is_declared_dead
        beside = [
            one
            for one in self._observer.bodies
            if one.is_live
            and (one.task, one.place) == (begun.task, begun.place)
            and one.began_ms > released_ms
            and not is_dead(one.worker)
        ]
        if len(beside) >= tasks.LINED[begun.task] and not (has_lost or is_dead(begun.worker)):
            return f"{begun} has no place of {begun.place}: {', '.join(map(str, beside))}"
        call = begun.call
        if self.world.climate.kinds or call.host is not None or begun.attempt > 1:
            return ""
        first = self._overtaken(begun)
        return f"{begun} begins before {first}, which waits" if first is not None else ""

    def _overtaken(self, begun: Body) -> Any:
        """Return a call that stood in the line when *begun* took its place, and was published
        before it; None if there is none.
        """
        call = begun.call
        # When it got its place at the earliest.
        at_once = begun.task == "shared"
        first_ms = call.began_ms if at_once else begun.began_ms - self._held_ms(begun)
        placed_ms = self._left.get(call.task_id, first_ms or 0.0)
        for other in self._observer.calls.values():
            if (
                (other.name, other.place) == (begun.task, begun.place)
                and self._since.get(other.task_id, _NEVER) < placed_ms
                # Within a millisecond there is no order.
                and (other.answered_ms or _NEVER) + 1 < (call.began_ms or 0.0)
                and not (other.bodies or other.is_excused or other.may_be_second)
            ):
                return other
        return None

    def _held_ms(self, body: Body) -> float:
        """How long ago its attempt was claimed."""
        indexes = self._observer.indexes
        claimed_ms = indexes.record(body.task_id).get("claimed_ms")
        return indexes.now_ms() - float(claimed_ms) if claimed_ms else _NEVER

    # -- lines

    def look(self, states: dict[str, str]) -> str:
        """Return who waits though nothing holds it up."""
        if not self.is_needed:
            return ""
        self._note(states)
        return "" if self.world.climate.kinds else self._waiting(states)

    def _note(self, states: dict[str, str]) -> None:
        """Note who stands in a line, and when the others left it."""
        now_ms = self._observer.now_ms
        standing = {one for one, state in states.items() if state.startswith(IN_LINE)}
        for task_id in self._since.keys() - standing:
            self._left[task_id] = now_ms
            del self._since[task_id]
        for task_id in standing:
            self._since.setdefault(task_id, now_ms)

    def _waiting(self, states: dict[str, str]) -> str:
        """Return who waits though a place is free, or has one and is in no queue."""
        idle = [*self._first_of_lines(states), *self._nowhere(states)]
        before, self._idle = self._idle, {}
        turns = {host.name: host.n_turns for host in self.world.hosts if host.is_up}
        for what in idle:
            since = self._idle[what] = before.get(what) or dict(turns)
            # Who started meanwhile has nothing to do with it.
            if all(n - since.get(name, -_TURNS) >= _TURNS for name, n in turns.items()):
                return what
        return ""

    def _first_of_lines(self, states: dict[str, str]) -> list[str]:
        """Return the first of each line of whose object a place is free."""
        indexes, found = self._observer.indexes, []
        for key in {one[len(IN_LINE) :] for one in states.values() if one.startswith(IN_LINE)}:
            locks = [indexes.keys.lock(slot) for slot in slots(key, self._places.get(key, 1))]
            if all(self.world.stage.ask("EXISTS", lock) for lock in locks):
                continue
            line = [one.decode() for one in indexes.line(key)]
            first = next((one for one in line if states.get(one) == IN_LINE + key), "")
            found.append(f"{first} waits for a place of {key}, and one is free")
        return found

    def _nowhere(self, states: dict[str, str]) -> list[str]:
        """Return who was let through and is in no queue, where nobody has anything to begin."""
        sent = [one for one in self._left if states.get(one) == "queued"]
        up = [host for host in self.world.hosts if host.is_up]
        if (
            not sent
            or self.world.n_queued(tasks.QUEUE)
            or any(host.waiting or host.jobs for host in up)
        ):
            return []
        return [f"{one} was given a place, and waits in no queue" for one in sent]
