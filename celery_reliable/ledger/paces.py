"""Transitions of tasks whose rate is limited: each waits for its moment, and is sent then."""

from __future__ import annotations

from collections.abc import Sequence

from celery_reliable.ledger.answers import ReserveAnswer, RipeAnswer
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.transitions import Step, Transition
from celery_reliable.model import Rate

__all__ = ["Paces"]

_RESERVE: Transition[ReserveAnswer] = Transition("reserve", ReserveAnswer)
_RIPE: Transition[RipeAnswer] = Transition("ripe", RipeAnswer)


class Paces(Part):
    """When limited tasks may begin."""

    def reserve(
        self,
        task_id: str,
        task_name: str,
        rate: Rate,
        *,
        epoch: str,
        patience_seconds: float | None = None,
    ) -> ReserveAnswer:
        """Ask for the moment of a publication: it is now, or the task is parked until then."""
        step = self.reserve_step(task_id, task_name, rate, epoch=epoch)
        return self._caller.run(step, patience_seconds)

    def reserve_step(
        self,
        task_id: str,
        task_name: str,
        rate: Rate,
        *,
        epoch: str,
    ) -> Step[ReserveAnswer]:
        """Return the call of `reserve` unsent: a claim may be made in one step with it."""
        return Step(
            _RESERVE,
            [
                self._keys.record(task_id),
                self._keys.due,
                self._keys.rate(rate.key),
                self._keys.line(task_name),
            ],
            [task_id, epoch, rate.interval_us, rate.key],
        )

    def ripe(
        self,
        task_names: Sequence[str],
        *,
        whose: str,
        worker: str,
        lease_ms: int,
        late_ms: int,
        limit: int,
    ) -> RipeAnswer:
        """Take the tasks of these names whose moment has come out of their lines.

        One worker of those that ask for *whose* tasks looks after them, for *lease_ms* after each
        call; the others get only what is late.  What is taken and not sent is due, for the sweeper.
        """
        return self._caller.call(
            _RIPE,
            [self._keys.pacer(whose), self._keys.due, *map(self._keys.line, task_names)],
            [worker, lease_ms, late_ms, limit],
        )
