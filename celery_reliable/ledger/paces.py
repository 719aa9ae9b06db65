"""Transitions of tasks whose rate is limited: each waits for its moment, and is sent then."""

from __future__ import annotations

from collections.abc import Sequence

from celery_reliable.ledger.answers import ReserveAnswer, RipeAnswer
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.transitions import Step
from celery_reliable.model import Rate

__all__ = ["Paces"]


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
        return self._calls.reserve(
            id=task_id, epoch=epoch, interval_us=rate.interval_us, key=rate.key, name=task_name
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
        return self._caller.run(
            self._calls.ripe(
                whose=whose,
                who=worker,
                lease_ms=lease_ms,
                late_ms=late_ms,
                limit=limit,
                lines=[*map(self._keys.line, task_names)],
            )
        )
