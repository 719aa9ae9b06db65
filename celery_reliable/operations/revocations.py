"""Tasks that live and are to end: revoked by an operator, who is told what became of each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from celery import Celery

from celery_reliable.ledger import Ledger, answers
from celery_reliable.model import Record, State
from celery_reliable.operations import shapes
from celery_reliable.operations.audit import noted
from celery_reliable.recovery import REVOCABLE, call_off_task

__all__ = ["IfRunning", "Revocations", "Revoked"]

_MOST_EXAMPLES = 5
#: How often a task may change its worker while it is looked at.
_MOST_OWNERS = 5


class IfRunning(str, Enum):
    """What becomes of an attempt that runs when its task is revoked."""

    #: Its process is asked to stop, by SIGTERM.
    STOP = "stop"
    #: Its process is killed, by SIGKILL: code that does not return to Python hears no SIGTERM.
    KILL = "kill"
    #: It may come to its end.  Should it be lost or try again, there is no other.
    FINISH = "finish"


class _Fate(str, Enum):
    """What becomes of a task that is to be revoked; as `Revoked` has them."""

    ENDED = "ended"
    RUNNING = "running"
    DEAD = "dead"
    REPLACED = "replaced"
    GONE = "gone"


_DONE, _FAILED = (_Fate.ENDED, _Fate.RUNNING), (_Fate.DEAD, _Fate.REPLACED)


@dataclass(frozen=True)
class Revoked:
    """What became of tasks that were to be revoked, or with a dry run would; by their ids.

    Attributes:
        run: names the act in the audit.
        if_running: what was to become of those that run.
        ended: nobody ran them, and nobody will.
        running: they run, and never will again; of those that are to stop the workers hear with
            their next beat.
        dead: they are dead letters, which are discarded rather than revoked.
        replaced: they replaced themselves by a canvas: its members are to be revoked.
        gone: the ledger knows no such task.
        is_dry_run: nothing was changed.
    """

    run: str
    if_running: IfRunning
    ended: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    is_dry_run: bool = False

    @property
    def done(self) -> int:
        """How many were revoked."""
        return len(self.ended) + len(self.running)

    @property
    def failed(self) -> int:
        """How many could not be: they are there, and not to be revoked."""
        return len(self.dead) + len(self.replaced)

    def as_dict(self) -> shapes.Revoked:
        """The same as plain JSON values."""
        return {
            "run": self.run,
            "if_running": self.if_running.value,
            "done": self.done,
            "ended": [*self.ended],
            "running": [*self.running],
            "dead": [*self.dead],
            "replaced": [*self.replaced],
            "gone": [*self.gone],
            "is_dry_run": self.is_dry_run,
        }


class Revocations:
    """Ends tasks that live, for good.  Raises what the ledger raises.

    What Celery's ``control.revoke`` does, without its broadcast and beyond it: the ledger is sure
    to know, or there is an error; the worker that runs a task hears of it with its next beat, and
    stops it unless it is to finish; and each task's fate is told.  May be interrupted and repeated.
    """

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    def revoke(
        self,
        task_ids: Iterable[str],
        *,
        by: str,
        if_running: IfRunning = IfRunning.STOP,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Revoked:
        """Revoke the tasks with these ids, each whatever it was published as last.

        REVOKED is stored as the result of what does not run, chords are told, objects freed.  What
        runs keeps its object until it has stopped.  A pool of threads, and a solo one, stops
        nothing: there a task finishes.  *progress* is called with how many tasks are done with,
        after each.
        """
        ids = list(dict.fromkeys(task_ids))
        run = secrets.token_hex(4)
        if dry_run:
            seen: list[tuple[str, _Fate]] = []
            for task_id in ids:
                seen.append((task_id, _fate_of(self._ledger.find(task_id))))
                progress(len(seen))
            return replace(_sorted(run, if_running, seen), is_dry_run=True)
        about = {
            "ids": ids[:_MOST_EXAMPLES],
            "ids_given": len(ids),
            "if_running": if_running.value,
        }
        fates: list[tuple[str, _Fate]] = []
        with noted(self._ledger, "revoke", by, about, run) as outcome:
            for task_id in ids:
                fate = self._called_off(task_id, by)
                fates.append((task_id, fate))
                outcome.done += fate in _DONE
                outcome.failed += fate in _FAILED
                progress(len(fates))
            if if_running is not IfRunning.FINISH:
                self._tell([one for one, fate in fates if fate is _Fate.RUNNING], if_running)
        return _sorted(run, if_running, fates)

    def _called_off(self, task_id: str, by: str) -> _Fate:
        record = self._ledger.find(task_id)
        if record is None or record.state not in REVOCABLE:
            return _fate_of(record)
        answer = call_off_task(self._app, self._ledger, record, by=f"by {by}")
        if isinstance(answer, answers.Cancelled):
            return _Fate.ENDED
        if isinstance(answer, answers.Running):
            return _Fate.RUNNING
        # It went on meanwhile.
        return _Fate.DEAD if isinstance(answer, answers.Dead) else _Fate.GONE

    def _tell(self, task_ids: list[str], if_running: IfRunning) -> None:
        """Tell the workers that run these tasks to stop them."""
        for task_id in task_ids:
            # It may be lost and begin elsewhere meanwhile; then that worker is told.
            for _ in range(_MOST_OWNERS):
                record = self._ledger.find(task_id)
                if record is None or record.state is not State.RUNNING:
                    break
                answer = self._ledger.orders.stop(task_id, record.owner, if_running.value)
                if isinstance(answer, answers.Told):
                    break


def _sorted(run: str, if_running: IfRunning, fates: list[tuple[str, _Fate]]) -> Revoked:
    def of(fate: _Fate) -> tuple[str, ...]:
        return tuple(task_id for task_id, found in fates if found is fate)

    return Revoked(
        run,
        if_running,
        ended=of(_Fate.ENDED),
        running=of(_Fate.RUNNING),
        dead=of(_Fate.DEAD),
        replaced=of(_Fate.REPLACED),
        gone=of(_Fate.GONE),
    )


def _fate_of(record: Record | None) -> _Fate:
    """Return what becomes of a task that is revoked in this state."""
    if record is None:
        return _Fate.GONE
    if record.state is State.RUNNING or record.is_called_off:
        # Of what was called off before, an attempt is still to be stopped.
        return _Fate.RUNNING
    if record.state is State.DEAD:
        return _Fate.DEAD
    return _Fate.REPLACED if record.state is State.WAITING else _Fate.ENDED
