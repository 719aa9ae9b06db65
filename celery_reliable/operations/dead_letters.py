"""What operators do with dead letters: group them by what they died of, list, get, replay and
discard them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from typing import Annotated, Any

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.clock import moment
from celery_reliable.exceptions import ReliableError, UnknownDeadLetter
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import HEADER, RETURNS, Envelope, Stamp, new_epoch, seconds_until
from celery_reliable.model import DeadLetter, Group, TaskRef
from celery_reliable.operations import views
from celery_reliable.operations.listing import EVERYTHING, Filter, Subject
from celery_reliable.operations.messages import envelope_of
from celery_reliable.operations.operation import Param, Part
from celery_reliable.options import is_reliable
from celery_reliable.publishing import resend
from celery_reliable.recovery import MOST_BYTES

__all__ = [
    "CannotReplay",
    "DeadLetters",
    "LetterGroups",
    "ToQueue",
    "UnknownGroup",
]

ToQueue = Annotated[
    str, Param("Send the tasks to this queue instead of their own.", max_length=255)
]


#: What an operator does about a letter that cannot be replayed.
_INSTEAD = "publish what was meant by it, and `discard` it."


class UnknownGroup(ReliableError, LookupError):
    """There is no group of dead letters with this id."""


class LetterGroups(Part):
    """What dead letters died of.  Raises what the ledger raises; each read is bounded."""

    def get(self, group_id: str) -> Group:
        """Return what the letters of a group have in common.  Raises UnknownGroup."""
        found = self.ledger.groups.find(group_id)
        if found is None:
            raise UnknownGroup(
                f"There is no group {group_id[:50]!r} of dead letters (any more). "
                "`celery -A … reliable dead-letters groups` shows those that there are."
            )
        return found

    def all(self, filter_: Filter = EVERYTHING) -> views.Groups:
        """Group dead letters by task, reason, cause and exception, the largest group first."""
        found = [
            views.Group(
                group=one.group.id,
                count=one.count,
                **asdict(one.group),
                first_at=moment(one.first_ms),
                last_at=moment(one.last_ms),
                example=one.example_id,
            )
            for one in self.ledger.groups.counts()
            if filter_.matches(Subject(one.group.task, one.group.reason, one.group.exception))
        ]
        return views.Groups(tuple(found), self.ledger.count_dead())


class CannotReplay(ReliableError):
    """This dead letter holds nothing that a worker could run."""


class DeadLetters(Part):
    """The dead letters of one app.

    Every method raises LedgerUnavailable, LedgerRefused and ConfigurationError, and each may be
    repeated.
    """

    def count(self) -> int:
        """Return how many dead letters there are."""
        return self.ledger.count_dead()

    def list(self, limit: int = 100) -> list[DeadLetter]:
        """Return at most *limit* dead letters, the latest first.

        One that is replayed or discarded while the list is read is left out.
        """
        ids = [id_ for id_, _ in self.ledger.letters_after(None, limit, is_latest_first=True)]
        looks = self.ledger.looks_in_groups(ids, most_bytes=MOST_BYTES)
        return [letter for look in looks if look and (letter := look.letter)]

    def get(self, task_id: str) -> DeadLetter:
        """Return one dead letter.  Raises UnknownDeadLetter."""
        look, _ = self.ledger.look(task_id)
        if look is None or look.letter is None:
            raise _unknown(task_id, "" if look is None else look.record.state.value)
        return look.letter

    def replay(self, task_id: str | DeadLetter, *, to_queue: str = "", by: str = "") -> str:
        """Return a dead letter to its queue, under its id, with its losses and its retries at zero.
        Returns why its message could not be sent at once; empty: it was.

        It runs as soon as a worker takes it: its ETA is dropped, and its expiry if that has passed.
        The record comes first; a message that cannot be sent then is sent by the sweeper, and that
        is no error.

        Args:
            task_id: the letter's; or the letter as it was read, and then one that was buried again
                since is not meant.
            to_queue: send it there instead of where it was sent before.
            by: who does it, for its history.

        Raises:
            UnknownDeadLetter: there is none with this id (any more).
            CannotReplay: it is a message that no worker can read; or it is of a task with another
                base, which nobody would send later, and the broker is away.
        """
        letter = self.get(task_id) if isinstance(task_id, str) else task_id
        envelope = self._to_send(letter, to_queue)
        # Who runs the task will claim it; the task itself may not be known here.
        has_record = letter.attempts > 0 or bool(Stamp.of(envelope.headers).epoch)
        if not has_record and not is_reliable(self.app.tasks.get(envelope.task_name)):
            return self._replay_plain(letter, envelope, by)
        epoch = new_epoch(letter.attempts, Stamp.of(envelope.headers).epoch)
        ledger, name, id_ = self.ledger, letter.name, letter.task_id
        while True:
            stamped = envelope.stamped(Stamp(ledger.generation, epoch), retries=0, eta=None)
            answer = ledger.replay(
                TaskRef(id_, name),
                epoch=epoch,
                message=stamped.to_text(),
                due_in_ms=reliable_of(self.app).config.queued_ms,
                buried_ms=letter.buried_ms,
                by=by,
            )
            if not isinstance(answer, answers.OtherGeneration):
                break
            ledger.generation = answer.current
        if not isinstance(answer, answers.Recorded):
            raise _unknown(id_)
        problem = ""
        try:
            resend(self.app, stamped)
        except Exception as exc:
            # The record is queued, so the sweeper delivers the task whatever went wrong here.
            problem = f"{type(exc).__name__}: {exc}"
            logger.warning("send_left_to_sweeper name=%s id=%s error=%s", name, id_, exc)
        events.dead_letter_replayed(app=self.app, name=name, task_id=id_, by=by)
        return problem

    def _to_send(self, letter: DeadLetter, to_queue: str = "") -> Envelope:
        """Return the message that a replay sends: the letter's, without what has passed.

        Raises CannotReplay.
        """
        envelope = _readable(letter)
        headers = dict(envelope.headers)
        with suppress(ValueError):
            if headers.get("expires") and seconds_until(headers["expires"]) == 0:
                headers["expires"] = None
        # The broker's own limit counted from the first publication; the header is what workers go
        # by.  And it came back from no worker yet.
        passed = ("expiration", RETURNS)
        properties = {k: v for k, v in envelope.properties.items() if k not in passed}
        envelope = replace(envelope, headers=headers, properties=properties)
        if not to_queue:
            return envelope
        queue = self.check_queue(to_queue)
        if queue.exchange is None or queue.exchange.type == "direct":
            return replace(envelope, exchange="", routing_key=to_queue)
        return replace(envelope, exchange=queue.exchange.name, routing_key=queue.routing_key)

    def check_queue(self, name: str) -> Any:
        """Return the queue *name* of the app.  Raises CannotReplay when there is none."""
        try:
            return self.app.amqp.queues[name]
        except KeyError:
            raise CannotReplay(
                f"There is no queue {name!r} in task_queues, and task_create_missing_queues is off."
            ) from None

    def _replay_plain(self, letter: DeadLetter, envelope: Envelope, by: str) -> str:
        """Send the message of a task that nobody would settle, and forget it.

        One that is of ours all the same gets its record when it is claimed.
        """
        headers = {**envelope.headers, "retries": 0, "eta": None}
        headers.pop(HEADER, None)
        try:
            resend(self.app, replace(envelope, headers=headers))
        except Exception as exc:
            raise CannotReplay(
                f"The message of {letter.task_id!r} could not be sent ({type(exc).__name__}: "
                f"{exc}). It is a dead letter still: replay it when the broker is back."
            ) from exc
        self.ledger.discard(letter.task_id, buried_ms=letter.buried_ms)
        events.dead_letter_replayed(app=self.app, name=letter.name, task_id=letter.task_id, by=by)
        return ""

    def discard(self, task_id: str | DeadLetter, *, by: str = "") -> None:
        """Remove a dead letter for good, by its id or as it was read.  Raises UnknownDeadLetter."""
        letter = self.get(task_id) if isinstance(task_id, str) else task_id
        answer = self.ledger.discard(letter.task_id, buried_ms=letter.buried_ms, by=by)
        if not isinstance(answer, answers.Cancelled):
            raise _unknown(letter.task_id)
        events.dead_letter_discarded(app=self.app, name=letter.name, task_id=letter.task_id, by=by)


def _unknown(task_id: str, state: str = "") -> UnknownDeadLetter:
    why = "it was replayed, discarded, or removed by age or count, or it never was one"
    return UnknownDeadLetter(
        f"There is no dead letter {task_id!r}: {f'the task is {state} now' if state else why}. "
        "`celery -A … reliable dead-letters list` shows those that there are.",
        task_id=task_id,
    )


def _readable(letter: DeadLetter) -> Envelope:
    """Return a letter's message.  Raises CannotReplay if it is no task's."""
    envelope = envelope_of(letter)
    if envelope is None or not envelope.task_name:
        raise CannotReplay(
            f"The dead letter {letter.task_id!r} is a message that no worker can read "
            f"({letter.exception}): it would come back at once. Look at it with "
            f"`show --with-arguments`, {_INSTEAD}"
        )
    return envelope
