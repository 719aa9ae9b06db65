"""All that operators see and do, opened once."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Annotated

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.clock import moment
from celery_reliable.findings import Limits
from celery_reliable.model import SweepReport
from celery_reliable.operations.bulk import Bulk
from celery_reliable.operations.dead_letters import DeadLetters, LetterGroups
from celery_reliable.operations.history import Happenings, noted
from celery_reliable.operations.objects import Objects
from celery_reliable.operations.operation import Param, duration
from celery_reliable.operations.queues import Queues
from celery_reliable.operations.status import look_at_status
from celery_reliable.operations.stop_button import StopButton
from celery_reliable.operations.tasks import Revocations, Runs, Tasks
from celery_reliable.operations.views import Audited, Status
from celery_reliable.operations.workers import Workers
from celery_reliable.recovery import MOST_PASSES_IN_A_ROW, BrokerView, Sweeper

__all__ = ["Desk", "Swept"]


@dataclass(frozen=True)
class Swept:
    """Whether a pass was run, and what it did."""

    ran: bool
    report: SweepReport | None


class Desk(AbstractContextManager["Desk"]):
    """The operator's view of one app and one ledger, by connections of its own.

    Every part raises LedgerUnavailable, LedgerRefused and ConfigurationError.  Everything may be
    repeated.  For one thread.

    Args:
        app: the Celery app whose settings say where the ledger is.
        patience_seconds: how long to go on asking a Redis that does not answer.  A person waits: by
            default that is shorter than what tasks allow one that is being restarted.
        sees_arguments: who asks may see arguments, so objects are called by their ids.

    Attributes:
        letters: the dead letters; `letter_groups` has what they died of, and `bulk` acts on many at
            once.
        tasks: tasks in pages, dead letters too, and any task by its id; `revocations` ends those
            that live.
        runs: the runs of one task on several workers.
        orders: what is paused, struck and drained.
        objects: the objects that tasks have to themselves.
        workers: the workers that have a lease.
        happenings: what happened lately, and what happens.
    """

    def __init__(
        self, app: Celery, *, patience_seconds: float = 3.0, sees_arguments: bool = False
    ) -> None:
        self.app = app
        self.ledger = ledger = reliable_of(app).own_ledger(
            patience_seconds=patience_seconds,
            is_for_operators=True,
        )
        #: Connects when it is asked.
        self.broker = broker = BrokerView(app)
        self.letters = DeadLetters(app, ledger)
        self.letter_groups = LetterGroups(app, ledger)
        self.bulk = Bulk(app, ledger)
        self.tasks = Tasks(app, ledger, broker, sees_arguments=sees_arguments)
        self.revocations = Revocations(app, ledger)
        self.workers = Workers(app, ledger, broker)
        self.runs = Runs(app, ledger)
        self.orders = StopButton(app, ledger)
        self.objects = Objects(app, ledger, sees_arguments=sees_arguments)
        self.happenings = Happenings(app, ledger)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.broker.close()
        self.ledger.close()

    @property
    def queues(self) -> Queues:
        """The queues, as they are looked at now."""
        return Queues(self.app, self.ledger, self.broker)

    def status(
        self,
        *,
        oldest_seconds: Annotated[
            float,
            duration("The longest time that a task may wait in its queue.", option="--max-age"),
        ] = Limits.oldest_seconds,
        recent_seconds: Annotated[
            float,
            duration("The time for which a death or a dead letter is reported."),
        ] = Limits.recent_seconds,
        run_seconds: Annotated[
            float,
            duration("The longest time that an attempt may run.", option="--max-run"),
        ] = Limits.run_seconds,
    ) -> Status:
        """Show what waits, what runs where, when the last pass ended, and what is wrong."""
        limits = Limits(
            oldest_seconds=oldest_seconds, recent_seconds=recent_seconds, run_seconds=run_seconds
        )
        return look_at_status(self.app, self.ledger, self.broker, limits)

    def audit(
        self,
        limit: Annotated[
            int, Param("The largest number to list or to act on.", ge=1, le=1000)
        ] = 50,
    ) -> list[Audited]:
        """List what operators did, the latest first: when each act began, and how it ended.

        An act without an end was killed, or still runs.
        """
        # Of a later version what is known.
        names = Audited.__dataclass_fields__.keys() - {"at"}
        return [
            Audited(at=moment(at_ms), **{one: about[one] for one in about.keys() & names})
            for at_ms, about in self.ledger.audits.latest(limit)
        ]

    def sweep(
        self,
        by: str,
        *,
        passes: Annotated[
            int,
            Param(
                "Passes that follow one another while there is more to do.",
                ge=1,
                le=MOST_PASSES_IN_A_ROW,
            ),
        ] = 1,
    ) -> Swept:
        """Run a pass of the sweeper now, unless one runs or has just finished.

        Workers run passes by themselves.  This is for a fleet in which no worker is alive.

        Raises kombu's errors, too.  It is for who knows the app's tasks.
        """
        with noted(self.ledger, "sweep", by, {}) as outcome:
            with closing(Sweeper(self.app)) as sweeper:
                report, _ = sweeper.run_if_due(passes)
            outcome.done = int(report is not None)
            return Swept(report is not None, report)
