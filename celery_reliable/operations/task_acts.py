"""What operators do to tasks that live: end them, or say which workers may run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any

from celery_reliable.app import reliable_of
from celery_reliable.leases import nodename_of
from celery_reliable.ledger import answers
from celery_reliable.message import NAMED, Envelope, NamedWorkers
from celery_reliable.model import Record, State
from celery_reliable.operations.audit import Outcome, noted
from celery_reliable.operations.messages import envelope_of
from celery_reliable.operations.operation import BadParameter, Param, Progress
from celery_reliable.operations.part import Part
from celery_reliable.operations.views import IfRunning, Moved, Revoked
from celery_reliable.options import NAMING
from celery_reliable.recovery import call_off_task, stored_end
from celery_reliable.settings import misfits

__all__ = ["Moves", "Revocations"]

_MOST_EXAMPLES = 5
#: The parameter of `move` by the option of a task.
_GIVEN_AS = {"only_workers": "workers", "prefer_workers": "prefer"}
#: How often a task may change its worker while it is looked at.
_MOST_OWNERS = 5
#: What becomes of a task that is to be revoked, by its state; of any other: it ends.
_FATES = {State.RUNNING: "running", State.DEAD: "dead"}


TaskIds = Annotated[
    tuple[Annotated[str, Param(min_length=1, max_length=1000)], ...],
    Param("Their ids.", min_length=1, most=500, is_argument=True, metavar="ID..."),
]
DryRun = Annotated[bool, Param("Count what would be done, and change nothing.")]


class _Acts(Part):
    """Acts on tasks one after the other, and sorts them by what became of each: a field of the
    class that is returned.  Raises what the ledger raises; may be interrupted and repeated.
    """

    def _act(
        self,
        name: str,
        fates: Mapping[str, bool],
        task_ids: Iterable[str],
        fate_of: Callable[[str], str],
        *,
        by: str,
        about: Mapping[str, Any],
        dry_run: bool,
        progress: Progress | None,
    ) -> dict[str, Any]:
        """Return the fields of the result that each act has.

        *fates*: what can become of a task, and whether that is what was to be done; "gone", for
        which there is no task, is none of them.
        """
        ids = list(dict.fromkeys(task_ids))
        found: dict[str, list[str]] = {one: [] for one in (*fates, "gone")}
        given = {"ids": ids[:_MOST_EXAMPLES], "ids_given": len(ids), **about}
        note = noted(self.ledger, name, by, given)
        with nullcontext(Outcome()) if dry_run else note as outcome:
            for number, task_id in enumerate(ids, 1):
                fate = fate_of(task_id)
                found[fate].append(task_id)
                outcome.done += fates.get(fate) is True
                outcome.failed += fates.get(fate) is False
                if progress is not None:
                    # The same ids again lead on.
                    progress(number, {})
        sorted_ids = {fate: tuple(ids) for fate, ids in found.items()}
        return {"run": outcome.run, "done": outcome.done, "is_dry_run": dry_run, **sorted_ids}


class Revocations(_Acts):
    """Ends tasks that live, for good.  Raises what the ledger raises.

    What Celery's ``control.revoke`` does, without its broadcast and beyond it: the ledger is sure
    to know, or there is an error; the worker that runs a task hears of it with its next beat, and
    stops it unless it is to finish; and each task's fate is told.  May be interrupted and repeated.
    """

    def revoke(
        self,
        ids: TaskIds,
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
        found = self._act(
            "revoke",
            {"ended": True, "running": True, "dead": False, "replaced": False},
            ids,
            lambda task_id: self._fate(task_id, by, if_running, dry_run=dry_run),
            by=by,
            about={"if_running": if_running.value},
            dry_run=dry_run,
            progress=progress,
        )
        return Revoked(if_running=if_running, **found)

    def _fate(self, task_id: str, by: str, if_running: IfRunning, *, dry_run: bool) -> str:
        record = self.ledger.find(task_id)
        if record is None:
            return "gone"
        if record.is_replaced:
            return "replaced"
        if dry_run or record.state is State.DEAD or record.is_called_off:
            # Of what was called off before, an attempt is still to be stopped.
            return "running" if record.is_called_off else _FATES.get(record.state, "ended")
        answer = call_off_task(self.app, self.ledger, record, by=f"by {by}")
        # It may have gone on meanwhile.
        fates = {answers.Cancelled: "ended", answers.Running: "running", answers.Dead: "dead"}
        fate = fates.get(type(answer), "gone")
        if fate == "running" and if_running is not IfRunning.FINISH:
            self._stop(task_id, if_running)
        return fate

    def _stop(self, task_id: str, if_running: IfRunning) -> None:
        """Tell the worker that runs a task to stop it."""
        # It may be lost and begin elsewhere meanwhile; then that worker is told.
        for _ in range(_MOST_OWNERS):
            record = self.ledger.find(task_id)
            if record is None or record.state is not State.RUNNING:
                return
            answer = self.ledger.orders.stop(task_id, record.owner, if_running.value)
            if isinstance(answer, answers.Told):
                return


class Moves(_Acts):
    """Says of tasks that live which workers may run them.  Raises what the ledger raises.

    May be interrupted and repeated.
    """

    def move(
        self,
        ids: TaskIds,
        workers: Annotated[
            tuple[str, ...],
            Param(
                "Only workers whose names fit these patterns; '*' is any that consumes its own "
                "queue.",
                most=100,
            ),
        ],
        *,
        by: str,
        prefer: Annotated[
            tuple[str, ...], Param("Workers that get the tasks first, if they are alive.", most=100)
        ] = (),
        dry_run: DryRun = False,
        progress: Progress | None = None,
    ) -> Moved:
        """Change which workers may run tasks that are queued, wait or run.

        If a task runs on a worker that may not run it, it is stopped there and runs elsewhere.
        That is counted as no loss.

        Raises BadParameter for what is no name.
        """
        workers = () if "*" in workers else workers
        given = {"only_workers": workers, "prefer_workers": prefer}
        named = {name: value for name, value in given.items() if value}
        for name, _, expected in misfits(NAMING, named):
            raise BadParameter(_GIVEN_AS[name], f"{name}={named[name]!r} is not {expected}.")
        meant = NamedWorkers(tuple(workers), tuple(prefer))
        found = self._act(
            "move",
            {"sent": True, "stopped": True, "stays": True, "refused": False},
            ids,
            lambda task_id: self._moved(task_id, meant, by, dry_run=dry_run),
            by=by,
            about={name: [*value] for name, value in named.items()},
            dry_run=dry_run,
            progress=progress,
        )
        return Moved(workers=meant.only, **found)

    def _fate(self, record: Record | None, meant: NamedWorkers) -> str:
        if record is None or record.is_called_off:
            return "gone"
        if record.state is State.RUNNING:
            return "stays" if meant.means(nodename_of(record.owner)) else "stopped"
        if record.is_to_run and envelope_of(record) is not None:
            return "sent"
        return "refused"

    def _moved(self, task_id: str, meant: NamedWorkers, by: str, *, dry_run: bool) -> str:
        while True:
            record = self.ledger.find(task_id)
            fate = self._fate(record, meant)
            envelope = None if record is None else envelope_of(record)
            if dry_run or fate in ("gone", "refused") or record is None or envelope is None:
                return fate
            if fate == "stopped" and stored_end(self.app, record):
                # It has ended but for its settlement.
                return "gone"
            message, epoch = self._again(envelope, record, meant)
            answer = self.ledger.named.move(
                record,
                epoch=epoch,
                message=message.to_text(),
                named=meant.to_text() if meant.is_any_named else "{}",
                is_stopped=fate == "stopped",
                due_in_ms=reliable_of(self.app).config.lease_ms,
                by=by,
            )
            if isinstance(answer, answers.Moved):
                return fate
            if isinstance(answer, answers.Absent):
                return "gone"

    def _again(
        self, envelope: Envelope, record: Record, meant: NamedWorkers
    ) -> tuple[Envelope, str]:
        """Return a task's message as another publication, which names workers, and its epoch."""
        before = NamedWorkers.of(envelope.headers)
        home = (envelope.exchange, envelope.routing_key)
        if before is not None and any(before.home):
            home = before.home
        again, epoch = envelope.published_anew(record.epoch, self.ledger.generation)
        headers = {name: value for name, value in again.headers.items() if name != NAMED}
        # A member of a run stays one: no other member's worker runs it.
        meant = replace(meant, home=home, run=before.run if before is not None else "")
        if meant.is_any_named:
            headers[NAMED] = meant.as_header()
        return replace(again, headers=headers, exchange=home[0], routing_key=home[1]), epoch
