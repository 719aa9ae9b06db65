"""All that operators see and do, opened once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.findings import Limits
from celery_reliable.model import SweepReport
from celery_reliable.operations.audit import Outcome, noted, read_audit
from celery_reliable.operations.bulk import Bulk
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.happenings import Happenings
from celery_reliable.operations.letters import LetterPages
from celery_reliable.operations.objects import Objects
from celery_reliable.operations.queues import Queues
from celery_reliable.operations.runs import Runs
from celery_reliable.operations.status import Throughputs, look_at_status
from celery_reliable.operations.stop_button import StopButton
from celery_reliable.operations.task_acts import Moves, Revocations
from celery_reliable.operations.tasks import Tasks
from celery_reliable.operations.views import Audited, FullStatus, Happened
from celery_reliable.operations.workers import Workers
from celery_reliable.recovery import MOST_PASSES_IN_A_ROW, BrokerView, Sweeper

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Desk"]


class Desk:
    """The operator's view of one app and one ledger, by connections of its own.

    Every part raises LedgerUnavailable, LedgerRefused and ConfigurationError.  Everything may be
    repeated.  For one thread.

    Args:
        app: the Celery app whose settings say where the ledger is.
        patience_seconds: how long to go on asking a Redis that does not answer.
        sees_arguments: who asks may see arguments, so objects are called by their ids.
    """

    def __init__(
        self, app: Celery, *, patience_seconds: float = 3.0, sees_arguments: bool = False
    ) -> None:
        self.app = app
        self._sees_arguments = sees_arguments
        self.ledger = reliable_of(app).own_ledger(
            reply_timeout_seconds=5.0,
            patience_seconds=patience_seconds,
            is_for_operators=True,
        )
        #: Connects when it is asked.
        self._broker = BrokerView(app)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._broker.close()
        self.ledger.close()

    @cached_property
    def letters(self) -> DeadLetters:
        """The dead letters."""
        return DeadLetters(self.app, ledger=self.ledger)

    @cached_property
    def letter_pages(self) -> LetterPages:
        """The dead letters in pages, and by group."""
        return LetterPages(self.app, self.ledger)

    @cached_property
    def bulk(self) -> Bulk:
        """What is done to many dead letters at once."""
        return Bulk(self.app, self.ledger, self.letters, self._broker)

    @contextmanager
    def noted(self, act: str, by: str, about: Mapping[str, Any]) -> Iterator[Outcome]:
        """Note in the audit what is done within, when it begins and how it ends.

        Only what begins is sure to be noted: where the ledger is away then, the end is not.
        """
        with noted(self.ledger, act, by, about) as outcome:
            yield outcome
            outcome.done = 1

    def audit(self, limit: int = 100) -> list[Audited]:
        """Return what operators did, the latest first."""
        return read_audit(self.ledger, limit)

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks that live, and any task by its id."""
        return Tasks(self.app, self.ledger, self._broker, sees_arguments=self._sees_arguments)

    @cached_property
    def revocations(self) -> Revocations:
        """What ends tasks that live."""
        return Revocations(self.app, self.ledger)

    @cached_property
    def runs(self) -> Runs:
        """The runs of one task on several workers."""
        return Runs(self.app, self.ledger, self.workers)

    @cached_property
    def moves(self) -> Moves:
        """What says which workers may run tasks that live."""
        return Moves(self.app, self.ledger)

    @cached_property
    def orders(self) -> StopButton:
        """What is paused, struck and drained."""
        return StopButton(self.app, self.ledger)

    def sweep(self, by: str, *, most_passes: int = MOST_PASSES_IN_A_ROW) -> SweepReport | None:
        """Run a pass of the sweeper now, and return its report; None, and nothing is done, while
        one runs or if one has just finished.

        *most_passes*: so many follow one another while there is more to do than one does.  For who
        knows the app's tasks.  Raises kombu's errors, too.
        """
        with noted(self.ledger, "sweep", by, {}) as outcome:
            sweeper = Sweeper(self.app)
            try:
                report, _ = sweeper.run_if_due(most_passes)
            finally:
                sweeper.close()
            outcome.done = int(report is not None)
            return report

    @cached_property
    def objects(self) -> Objects:
        """The objects that tasks have to themselves."""
        return Objects(self.app, self.ledger, sees_arguments=self._sees_arguments)

    @cached_property
    def workers(self) -> Workers:
        """The workers that have a lease."""
        return Workers(self.ledger, self._broker)

    @property
    def queues(self) -> Queues:
        """The queues, as they are looked at now."""
        return Queues(self.app, self.ledger, self._broker)

    def events(
        self,
        after: str = "",
        *,
        limit: int = 100,
        kinds: Sequence[str] = (),
        task: str = "",
        newer_than_seconds: float | None = None,
    ) -> Happened:
        """What happened lately, the oldest first, as `Happenings.page` has it."""
        return Happenings(self.ledger).page(
            after, limit=limit, kinds=kinds, task=task, newer_than_seconds=newer_than_seconds
        )

    def follow(
        self,
        after: str = "",
        *,
        kinds: Sequence[str] = (),
        task: str = "",
        patience_seconds: float | None = None,
        on_away: Callable[[LedgerUnavailable], None] | None = None,
    ) -> Iterator[Happened]:
        """What happens from now on, or after a cursor, as `Happenings.follow` has it."""
        return Happenings(self.ledger).follow(
            after, kinds=kinds, task=task, patience_seconds=patience_seconds, on_away=on_away
        )

    def status(self, limits: Limits | None = None) -> FullStatus:
        """All of it in one value, and what is wrong by *limits*."""
        return look_at_status(self.app, self.ledger, self._broker, limits)

    @property
    def throughputs(self) -> Throughputs:
        """How fast attempts are processed, and how many fail and are lost, as of now."""
        return Throughputs.of(self.ledger)
