"""Any task that lives: its state, why it waits, what happened to it, and how it is ended; and runs,
of one task on several workers, on each of them once: who has what, and what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from celery_reliable.clock import moment, utc
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Look, answers
from celery_reliable.ledger import Run as LedgerRun
from celery_reliable.model import HistoryEntry, State
from celery_reliable.operations.dead_letters import LetterGroups
from celery_reliable.operations.history import noted
from celery_reliable.operations.listing import EVERYTHING, Filter, Kind, Page, Position, Walk
from celery_reliable.operations.messages import message_view
from celery_reliable.operations.operation import (
    Cursor,
    DryRun,
    Id,
    Limit,
    Param,
    Part,
    Progress,
    Right,
)
from celery_reliable.operations.views import (
    Entry,
    IfRunning,
    Revoked,
    Run,
    RunMember,
    Task,
    TaskInFull,
)
from celery_reliable.operations.waits import Situation, absent, ended
from celery_reliable.recovery import call_off_task, stored_task

__all__ = ["Revocations", "Runs", "Tasks", "UnknownRun"]

_MOST_RUNS = 50


class Tasks(Part):
    """The tasks of a ledger's namespace.  Raises what the ledger raises."""

    def get(
        self,
        id_: Id,
        *,
        arguments: Annotated[
            bool,
            Param(
                "Show the arguments and the whole message, unredacted.",
                option="--with-arguments",
                needs=Right.SEE_ARGUMENTS,
            ),
        ] = False,
    ) -> TaskInFull:
        """Show one task, whatever became of it: its state, why it waits, and what happened to it.

        Arguments are shown only on request, to those who may see them.  The text and the traceback
        of an exception are always shown.

        Raises kombu's errors, too: it looks at its queue and at what workers were delivered, as far
        as that is cheap.  A message deep in a long queue is only known to be in it.
        """
        facts: dict[str, Any] = {}
        before = None
        # It may go on while its message is looked for.
        for _ in range(2):
            found, now_ms = self.ledger.look(id_)
            if found is None:
                return self._ended(id_)
            look, record = found, found.record
            if before != (record.state, record.token):
                before = record.state, record.token
                orders = self.ledger.orders.read()
                facts = Situation(self, look, orders, now_ms, is_alone=True).facts()
        history = _history(record.published_ms, look.history)
        if record.state is State.RUNNING:
            begun_at = moment(record.claimed_ms)
            history.append(Entry(begun_at, "started", record.attempt, "", record.owner, record.pid))
        more: dict[str, Any] = message_view(record, with_arguments=arguments)
        if (letter := look.letter) is not None:
            more["traceback"] = letter.traceback
        return TaskInFull(**facts, history=tuple(history), **more)

    def _ended(self, task_id: str) -> TaskInFull:
        """Return what is kept of a task that has no record."""
        kept = self.ledger.ended_task(task_id) or stored_task(self.app, task_id)
        if kept is None:
            return TaskInFull(task_id=task_id, state="absent", why=absent(task_id))
        history = _history(kept.published_ms, kept.history)
        for what, ms, cause in (
            ("started", kept.claimed_ms, ""),
            ("ended", kept.ended_ms, kept.outcome or kept.by),
        ):
            if ms:
                history.append(Entry(moment(ms), what, kept.attempts, cause, kept.owner, kept.pid))
        return TaskInFull(
            task_id=task_id,
            name=kept.name,
            state="ended",
            why=ended(kept),
            attempts=kept.attempts,
            losses=kept.losses,
            worker=kept.owner,
            published_at=moment(kept.published_ms),
            outcome=kept.outcome,
            history=tuple(history),
        )

    def page(
        self,
        filter_: Filter = EVERYTHING,
        *,
        state: Annotated[Kind | None, Param("The state of the task.")] = None,
        group: Annotated[str, Param("The dead letters of this group (its id).")] = "",
        limit: Limit = 50,
        cursor: Cursor = "",
    ) -> Page[Task]:
        """List tasks with what each waits for: those that run, then those that wait.

        Dead letters are listed with the state dead, the latest first.

        Args:
            filter_: only what fits.
            state: None: all but dead letters.
            group: of dead letters.
            limit: at most so many.
            cursor: where a page before has ended.

        Raises UnknownGroup, and BadParameter for a cursor that is none.  Where messages are, who
        has an object and which workers live is not looked at.
        """
        if group:
            LetterGroups(self.app, self.ledger).get(group)
        now_ms = self.ledger.workers.time_ms()
        orders = self.ledger.orders.read()
        walk = Walk(
            self.ledger,
            filter_,
            now_ms,
            kind=state,
            group=group,
            is_latest_first=True,
            place=Position.of(cursor),
        )

        def view(look: Look) -> Task:
            return Task(**Situation(self, look, orders, now_ms, is_alone=False).facts())

        return walk.page(limit, view)


def _history(published_ms: int, noted: Iterable[HistoryEntry]) -> list[Entry]:
    """Return what happened to a task, with the beginning of each attempt of which that is known."""
    found = [Entry(moment(published_ms), "published")] if published_ms else []
    for one in noted:
        end = Entry(moment(one.at_ms), one.what, one.attempt, one.cause, one.owner, one.pid)
        if one.claimed_ms:
            found.append(replace(end, at=moment(one.claimed_ms), what="started", cause=""))
        found.append(end)
    return found


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
        return sorted(found, key=lambda one: (one.begun_at or utc(0), one.run), reverse=True)

    def _view(self, run: str, found: LedgerRun) -> Run:
        ids = sorted(found.members)
        members = []
        for task_id, look in zip(ids, self.ledger.look_all(ids), strict=True):
            worker = next(iter(found.members[task_id]), "")
            kept = None if look else stored_task(self.app, task_id)
            state = look.record.state.value if look else "ended"
            members.append(RunMember(task_id, worker, state, kept.outcome if kept else ""))
        states = dict(sorted(Counter(one.state for one in members).items()))
        said = f"{found.name} on {len(members)} workers: "
        said += ", ".join(f"{count} {state}" for state, count in states.items()) + "."
        missing = sum(one.state == "waiting" and not one.worker for one in members)
        if missing:
            meant = ", ".join(map(repr, found.only)) or "any name"
            said += f" {missing} wait for a worker ({meant}) that no other member has or had."
        begun_at = moment(found.begun_ms)
        return Run(run, found.name, found.only, begun_at, states, missing, said, tuple(members))


_MOST_EXAMPLES = 5
#: What becomes of a task that is to be revoked, by its state; of any other: it ends.
_FATES = {State.RUNNING: "running", State.DEAD: "dead"}
#: What can become of a task, and whether that is what was to be done; for "gone" there is none.
_IS_DONE = {"ended": True, "running": True, "dead": False, "replaced": False}


class Revocations(Part):
    """Ends tasks that live, for good.  Raises what the ledger raises.

    What Celery's ``control.revoke`` does, without its broadcast and beyond it: the ledger is sure
    to know, or there is an error; the worker that runs a task hears of it with its next beat, and
    stops it unless it is to finish; and each task's fate is told.  May be interrupted and repeated.
    """

    def revoke(
        self,
        ids: Annotated[
            tuple[Annotated[str, Param(min_length=1)], ...],
            Param("Their ids.", min_length=1, most=500, is_argument=True, metavar="ID..."),
        ],
        *,
        by: str,
        if_running: Annotated[
            IfRunning, Param("What runs is stopped (SIGTERM), killed (SIGKILL), or may finish.")
        ] = IfRunning.STOP,
        dry_run: DryRun = False,
        progress: Progress | None = None,
    ) -> Revoked:
        """End tasks for good that are queued, wait or run.

        Their result is REVOKED.  Dead letters stay: discard them.
        """
        task_ids = list(dict.fromkeys(ids))
        found: dict[str, list[str]] = {one: [] for one in (*_IS_DONE, "gone")}
        given = {
            "ids": task_ids[:_MOST_EXAMPLES],
            "ids_given": len(task_ids),
            "if_running": if_running.value,
        }
        with noted(self.ledger, "revoke", by, given, is_noted=not dry_run) as outcome:
            for number, task_id in enumerate(task_ids, 1):
                fate = self._fate(task_id, by, if_running, dry_run=dry_run)
                found[fate].append(task_id)
                outcome.done += _IS_DONE.get(fate) is True
                outcome.failed += _IS_DONE.get(fate) is False
                if progress is not None:
                    # The same ids again lead on.
                    progress(number, {})
        return Revoked(
            run=outcome.run,
            done=outcome.done,
            is_dry_run=dry_run,
            if_running=if_running,
            **{fate: tuple(some) for fate, some in found.items()},
        )

    def _fate(self, task_id: str, by: str, if_running: IfRunning, *, dry_run: bool) -> str:
        record = self.ledger.find(task_id)
        if record is None:
            return "gone"
        if record.is_replaced:
            return "replaced"
        if dry_run or record.state is State.DEAD or record.is_called_off:
            # Of what was called off before, an attempt is still to be stopped.
            return "running" if record.is_called_off else _FATES.get(record.state, "ended")
        answer = call_off_task(
            self.app, self.ledger, record, by=f"by {by}", if_running=if_running.value
        )
        # It may have gone on meanwhile.
        fates = {answers.Cancelled: "ended", answers.Running: "running", answers.Dead: "dead"}
        return fates.get(type(answer), "gone")
