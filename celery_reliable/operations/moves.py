"""Tasks that live and are to run elsewhere: an operator says which workers may run them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.leases import nodename_of
from celery_reliable.ledger import Ledger, answers
from celery_reliable.message import NAMED, Envelope, NamedWorkers
from celery_reliable.model import Record, State
from celery_reliable.operations import shapes
from celery_reliable.operations.audit import noted
from celery_reliable.operations.messages import envelope_of
from celery_reliable.options import naming_problems
from celery_reliable.recovery import stored_end

__all__ = ["CannotMove", "Moved", "Moves"]

_MOST_EXAMPLES = 5


class CannotMove(ReliableError, ValueError):
    """It is not clear which workers are meant."""


class _Fate(str, Enum):
    """What becomes of a task that is moved; as `Moved` has them."""

    SENT = "sent"
    STOPPED = "stopped"
    STAYS = "stays"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True)
class Moved:
    """What became of tasks that were to run elsewhere, or with a dry run would; by their ids.

    Attributes:
        run: names the act in the audit.
        workers: the patterns of the workers that may run them; none: any worker may.
        sent: nobody ran them: they go to one of these workers, or wait for one.
        stopped: they ran on a worker that may not run them any more.  It stops them, which is no
            loss, and then they run elsewhere.
        stays: they run on a worker that may run them.  Should they be lost or try again, the next
            attempt runs on one of these.
        refused: they are dead letters, or replaced themselves by a canvas, or nobody can read them.
        gone: the ledger knows no such task, or it went on in this moment.
        is_dry_run: nothing was changed.
    """

    run: str
    workers: tuple[str, ...]
    sent: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    is_dry_run: bool = False

    @property
    def done(self) -> int:
        """How many were moved."""
        return len(self.sent) + len(self.stopped) + len(self.stays)

    def as_dict(self) -> shapes.Moved:
        """The same as plain JSON values."""
        return {
            "run": self.run,
            "workers": [*self.workers],
            "done": self.done,
            "sent": [*self.sent],
            "stopped": [*self.stopped],
            "stays": [*self.stays],
            "refused": [*self.refused],
            "gone": [*self.gone],
            "is_dry_run": self.is_dry_run,
        }


class Moves:
    """Says of tasks that live which workers may run them.  Raises what the ledger raises.

    May be interrupted and repeated.
    """

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self._app = app
        self._config = reliable_of(app).config
        self._ledger = ledger

    def move(
        self,
        task_ids: Iterable[str],
        workers: Sequence[str],
        *,
        by: str,
        prefer: Sequence[str] = (),
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Moved:
        """Let only *workers* (names, or patterns of names) run these tasks; none: any worker.

        *prefer*: those that get them first.  Raises CannotMove for what is no name.
        *progress* is called with how many tasks are done with, after each.
        """
        given = {"only_workers": workers, "prefer_workers": prefer}
        named = {name: value for name, value in given.items() if value}
        for name, expected in naming_problems(named):
            raise CannotMove(f"{name}={named[name]!r} is not {expected}.")
        meant = NamedWorkers(tuple(workers), tuple(prefer))
        ids = list(dict.fromkeys(task_ids))
        found = Moved(secrets.token_hex(4), meant.only)
        if dry_run:
            seen: list[tuple[str, _Fate]] = []
            for task_id in ids:
                seen.append((task_id, self._fate(self._ledger.find(task_id), meant)))
                progress(len(seen))
            return replace(_sorted(found, seen), is_dry_run=True)
        about = {
            "ids": ids[:_MOST_EXAMPLES],
            "ids_given": len(ids),
            **{name: [*value] for name, value in named.items()},
        }
        fates: list[tuple[str, _Fate]] = []
        with noted(self._ledger, "move", by, about, found.run) as outcome:
            for task_id in ids:
                fate = self._moved(task_id, meant, by)
                fates.append((task_id, fate))
                outcome.done += fate in (_Fate.SENT, _Fate.STOPPED, _Fate.STAYS)
                outcome.failed += fate is _Fate.REFUSED
                progress(len(fates))
        return _sorted(found, fates)

    def _fate(self, record: Record | None, meant: NamedWorkers) -> _Fate:
        if record is None or record.is_called_off:
            return _Fate.GONE
        if record.state is State.RUNNING:
            return _Fate.STAYS if meant.means(nodename_of(record.owner)) else _Fate.STOPPED
        if record.state in (State.QUEUED, State.PARKED) and envelope_of(record) is not None:
            return _Fate.SENT
        return _Fate.REFUSED

    def _moved(self, task_id: str, meant: NamedWorkers, by: str) -> _Fate:
        while True:
            record = self._ledger.find(task_id)
            fate = self._fate(record, meant)
            envelope = None if record is None else envelope_of(record)
            if fate in (_Fate.GONE, _Fate.REFUSED) or record is None or envelope is None:
                return fate
            if fate is _Fate.STOPPED and stored_end(self._app, record):
                # It has ended but for its settlement.
                return _Fate.GONE
            message, epoch = self._again(envelope, record, meant)
            answer = self._ledger.named.move(
                record,
                epoch=epoch,
                message=message.to_text(),
                named=meant.to_text() if meant.is_any_named else "{}",
                is_stopped=fate is _Fate.STOPPED,
                due_in_ms=self._config.lease_ms,
                by=by,
            )
            if isinstance(answer, answers.Moved):
                return fate
            if isinstance(answer, answers.Absent):
                return _Fate.GONE

    def _again(
        self, envelope: Envelope, record: Record, meant: NamedWorkers
    ) -> tuple[Envelope, str]:
        """Return a task's message as another publication, which names workers, and its epoch."""
        before = NamedWorkers.of(envelope.headers)
        home = (envelope.exchange, envelope.routing_key)
        if before is not None and any(before.home):
            home = before.home
        again, epoch = envelope.published_anew(record.epoch, self._ledger.generation)
        headers = {name: value for name, value in again.headers.items() if name != NAMED}
        # A member of a run stays one: no other member's worker runs it.
        meant = replace(meant, home=home, run=before.run if before is not None else "")
        if meant.is_any_named:
            headers[NAMED] = meant.as_header()
        return replace(again, headers=headers, exchange=home[0], routing_key=home[1]), epoch


def _sorted(found: Moved, fates: list[tuple[str, _Fate]]) -> Moved:
    def of(fate: _Fate) -> tuple[str, ...]:
        return tuple(task_id for task_id, one in fates if one is fate)

    return replace(
        found,
        sent=of(_Fate.SENT),
        stopped=of(_Fate.STOPPED),
        stays=of(_Fate.STAYS),
        refused=of(_Fate.REFUSED),
        gone=of(_Fate.GONE),
    )
