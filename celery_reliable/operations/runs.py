"""Runs: one task on several workers, on each of them once; who has what, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from celery import Celery

from celery_reliable.ledger import Ledger
from celery_reliable.message import NamedWorkers
from celery_reliable.model import State
from celery_reliable.operations import shapes
from celery_reliable.operations.times import iso
from celery_reliable.operations.workers import Workers

__all__ = ["MemberView", "RunView", "RunViews"]

_MOST_NAMED = 10
#: States of members that have come to an end.
_OVER = ("ended", State.DEAD.value)
_MOST_RUNS = 50


@dataclass(frozen=True)
class MemberView:
    """One member of a run.

    Attributes:
        worker: the name of the worker that it has, or had; empty while it waits for one.
        state: of its task: "parked" while it waits for a worker, "queued", "running", "dead";
            "ended" when the ledger has no record of it any more.
        result: Celery's state of its result, of one that has ended; empty where none is kept.
    """

    task_id: str
    worker: str
    state: str
    result: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a worker that no other member has."""
        return self.state == State.PARKED.value and not self.worker

    def as_dict(self) -> shapes.RunMember:
        """The same as plain JSON values."""
        return {
            "task_id": self.task_id,
            "worker": self.worker,
            "state": self.state,
            "result": self.result,
        }


@dataclass(frozen=True)
class RunView:
    """A run.

    Attributes:
        only_workers: patterns of the workers that it may run on; none: any.
        free: names of the living workers that it could run on, and that no member has.
        alive: how many workers live that it may run on; those that are drained do not count.
    """

    run: str
    name: str
    only_workers: tuple[str, ...]
    begun_ms: int
    members: tuple[MemberView, ...]
    free: tuple[str, ...] = ()
    alive: int = 0

    @property
    def is_over(self) -> bool:
        """Whether no member is going to run any more, unless a dead letter is replayed."""
        return all(one.state in _OVER for one in self.members)

    @property
    def missing(self) -> int:
        """How many members wait for a worker."""
        return sum(one.is_waiting for one in self.members)

    @property
    def states(self) -> dict[str, int]:
        """How many members are in each state."""
        return dict(sorted(Counter(one.state for one in self.members).items()))

    @property
    def sentence(self) -> str:
        """How it stands, in words."""
        told = ", ".join(f"{count} {state}" for state, count in self.states.items())
        said = f"{self.name} on {len(self.members)} workers: {told}."
        if not self.missing:
            return said
        meant = ", ".join(map(repr, self.only_workers)) or "any name"
        said += f" {self.missing} wait for a worker ({meant}) that no other member has or had"
        if self.free:
            return f"{said}: {', '.join(self.free[:_MOST_NAMED])} will be given one soon."
        return f"{said}: {self.alive} are alive, start {self.missing} more."

    def as_dict(self) -> shapes.Run:
        """The same as plain JSON values."""
        return {
            "run": self.run,
            "name": self.name,
            "only_workers": [*self.only_workers],
            "begun_at": iso(self.begun_ms),
            "states": self.states,
            "missing": self.missing,
            "sentence": self.sentence,
            "members": [one.as_dict() for one in self.members],
        }


class RunViews:
    """The runs of a ledger's namespace.  Raises what the ledger raises."""

    def __init__(self, app: Celery, ledger: Ledger, workers: Workers) -> None:
        self._app = app
        self._ledger = ledger
        self._workers = workers

    def get(self, run: str) -> RunView | None:
        """Return a run; None of one that is forgotten, or never was.

        A run is kept as long as results are (``result_expires``) once all its members have ended.
        """
        return self._view(run, self._living())

    def all(self) -> list[RunView]:
        """Return runs that are not over, the latest first; of 50 that passes know at most."""
        living = self._living()
        views = (self._view(run, living) for run in self._ledger.runs.known(_MOST_RUNS))
        found = [one for one in views if one is not None and not one.is_over]
        return sorted(found, key=lambda one: (-one.begun_ms, one.run))

    def _living(self) -> list[str]:
        orders = self._ledger.orders.read()
        names = {
            one.nodename for one in self._workers.all(with_broker=False) if one.state == "alive"
        }
        return sorted(one for one in names if not orders.is_drained(one, orders.now_ms))

    def _view(self, run: str, living: Sequence[str]) -> RunView | None:
        found = self._ledger.runs.find(run)
        if found is None:
            return None
        ids = sorted(found.members)
        looks = dict(zip(ids, self._ledger.look_all(ids), strict=True))
        members = []
        for task_id in ids:
            look, workers = looks[task_id], found.members[task_id]
            state = "ended" if look is None else look.record.state.value
            result = self._result(task_id) if look is None else ""
            members.append(MemberView(task_id, workers[0] if workers else "", state, result))
        named = NamedWorkers(found.only)
        alive = [one for one in living if named.means(one)]
        taken = {name for workers in found.members.values() for name in workers}
        return RunView(
            run,
            found.name,
            found.only,
            found.begun_ms,
            tuple(members),
            tuple(name for name in alive if name not in taken),
            len(alive),
        )

    def _result(self, task_id: str) -> str:
        try:
            return str(self._app.AsyncResult(task_id).state)
        except Exception:
            # Backends raise what their drivers raise; without one there is nothing to tell.
            return ""
