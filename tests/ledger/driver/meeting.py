"""A world in which two actors meet, and then move in an order that is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.ledger.driver.climate import Climate
from tests.ledger.driver.wire import shown
from tests.ledger.driver.worlds import Fault, World

#: So often somebody moves before a pair stands where it should, and mostly far less often.
_MOST_MOVES = 3_000

#: What asks nobody for anything that another actor may have changed.
_ALIKE = (b"PING", b"driver:", b"CLIENT\r\n")


@dataclass(frozen=True)
class Pair:
    """Two actors, and how a world comes to where they meet."""

    #: Brings the two of them about, each held before a command.
    meet: Callable[[Any], tuple[Any, Any]]
    #: How the world differs from one with two workers of two processes and tasks that succeed.
    climate: dict[str, Any] = field(default_factory=dict)


class Meeting(World):
    """One order of a pair."""

    def __init__(self, stage: Any, pair: Pair, order: Sequence[int], **options: Any) -> None:
        """*order*: each time that both can move, 1 if another does than before; first the first."""
        super().__init__(0, stage, climate=Climate(**pair.climate), **options)
        self._pair = pair
        self._order = order
        #: As it was, each time that both could move.
        self.taken: list[int] = []

    def live(self) -> None:
        self.schedule.haste = 0.0
        two = self._pair.meet(self)
        self.note(f"they meet: {two[0].name} and {two[1].name}")
        which = 0
        while able := [one for one in two if self._can_move(one)]:
            if len(able) == 2:
                n = len(self.taken)
                self.taken.append(self._order[n] if n < len(self._order) else 0)
                which ^= self.taken[-1]
            else:
                which = two.index(able[0])
            self._let_command(two[which])
        self.schedule.held.clear()

    def _let_command(self, actor: Any) -> None:
        """Let it send one command that matters, and what it sends besides."""
        while True:
            self.let_move(actor)
            self.schedule.bury_the_dead()
            for name, error in self.schedule.errors:
                raise Fault(f"{name} raised {error!r}") from error
            if not self._can_move(actor) or not any(
                word in self.asked(actor, is_raw=True) for word in _ALIKE
            ):
                return

    def _can_move(self, actor: Any) -> bool:
        is_up = actor.process.is_alive and not actor.process.is_frozen
        return is_up and not actor.is_over and actor.wake_ms <= self.schedule.now_ms

    def asked(self, actor: Any, *, is_raw: bool = False) -> Any:
        """The command before which an actor stands."""
        command = actor.asks or b""
        data = command.encode() if isinstance(command, str) else b"".join(command)
        return data if is_raw else shown(data, self.stage.names_by_sha)

    # What pairs are brought about with.

    def until(self, condition: Callable[[], Any]) -> Any:
        """Let all move who are not held until *condition* gives something; return that."""
        for _ in range(_MOST_MOVES):
            if found := condition():
                return found
            self.move()
        raise Fault("they never meet")

    def comes_to(self, what: tuple[str, ...], who: tuple[str, ...]) -> Any:
        """Let all move until somebody who is asked for stands before *what*; hold them there.

        Both are parts of what stands in a trace; the first is that of a command.
        """

        def _is_at(actor: Any) -> bool:
            is_one = actor.process.is_alive and any(part in actor.name for part in who)
            asked = f"{self.asked(actor)} " if is_one else ""
            return bool(actor.asks) and any(part in asked for part in what)

        actor = self.until(lambda: next((one for one in self.schedule.actors if _is_at(one)), None))
        self.schedule.held.add(actor)
        return actor

    def goes_by(self, seconds: float) -> None:
        """Let all move who are not held for so long."""
        end_ms = self.schedule.now_ms + seconds * 1000
        self.until(lambda: self.schedule.now_ms >= end_ms)
