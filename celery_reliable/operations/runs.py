"""Runs: one task on several workers, on each of them once; who has what, and what is missing."""

from __future__ import annotations

from collections import Counter

from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Run as LedgerRun
from celery_reliable.operations.operation import Id
from celery_reliable.operations.part import Part
from celery_reliable.operations.views import Run, RunMember
from celery_reliable.operations.words import moment, utc

__all__ = ["Runs", "UnknownRun"]

_MOST_RUNS = 50


class UnknownRun(ReliableError, LookupError):
    """There is no such run, or none any more."""


class Runs(Part):
    """The runs of a ledger's namespace.  Raises what the ledger raises."""

    def get(self, id_: Id) -> Run:
        """Show a run (`task.run_on`): its members, which worker each has, and what is missing.

        Raises UnknownRun.  A run is kept as long as results are (``result_expires``) once all its
        members have ended.
        """
        found = self.ledger.runs.find(id_)
        if found is None:
            raise UnknownRun("There is no such run, or none any more.")
        return self._view(id_, found)

    def all(self) -> list[Run]:
        """List the runs of one task on several workers that are not over, the latest first; 50 at
        most.
        """
        known = {run: self.ledger.runs.find(run) for run in self.ledger.runs.known(_MOST_RUNS)}
        views = [self._view(run, found) for run, found in known.items() if found is not None]
        # What has ended or is a dead letter does not run any more, unless it is replayed.
        found = [one for one in views if not one.states.keys() <= {"ended", "dead"}]
        found.sort(key=lambda one: one.run)
        return sorted(found, key=lambda one: one.begun_at or utc(0), reverse=True)

    def _view(self, run: str, found: LedgerRun) -> Run:
        ids = sorted(found.members)
        members = []
        for task_id, look in zip(ids, self.ledger.look_all(ids), strict=True):
            worker = next(iter(found.members[task_id]), "")
            if look is None:
                members.append(RunMember(task_id, worker, "ended", self._result(task_id)))
            else:
                members.append(RunMember(task_id, worker, look.record.state.value))
        states = dict(sorted(Counter(one.state for one in members).items()))
        said = f"{found.name} on {len(members)} workers: "
        said += ", ".join(f"{count} {state}" for state, count in states.items()) + "."
        missing = sum(one.state == "waiting" and not one.worker for one in members)
        if missing:
            meant = ", ".join(map(repr, found.only)) or "any name"
            said += f" {missing} wait for a worker ({meant}) that no other member has or had."
        begun_at = moment(found.begun_ms)
        return Run(run, found.name, found.only, begun_at, states, missing, said, tuple(members))

    def _result(self, task_id: str) -> str:
        try:
            return str(self.app.AsyncResult(task_id).state)
        except Exception:
            # Backends raise what their drivers raise; without one there is nothing to tell.
            return ""
