"""The record of one publication, made before the sending or with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery_reliable.app import Reliable
from celery_reliable.context import is_forgotten, running
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.message import HEADER, HEIR, Stamp, looks_used_once, seconds_until
from celery_reliable.model import Claim, State
from celery_reliable.options import (
    REFUSE,
    is_placed_early,
    room_of,
    task_ref,
)
from celery_reliable.publishing.errors import PublishUnknown, exists, not_recorded, not_sent
from celery_reliable.publishing.placement import place, rename

__all__ = [
    "Publication",
    "calling",
    "instead_of",
    "is_anothers",
    "is_left",
    "is_member",
    "is_send_given_up",
]

#: What Celery says when it publishes a canvas's member or callback, and a plain call does not.
#: (`reply_to` is set when a signature is frozen: somebody was given its id already.)
_MEMBERSHIP = ("chain", "chord", "group_id", "parent_id", "reply_to", "root_id")


@dataclass
class Call:
    """A call of `ReliableTask.apply_async`, while it is published."""

    task_id: str
    #: The id is Celery's own choice: nobody has had it before.
    is_fresh: bool
    #: It is withdrawn if another task has the object.
    is_unique: bool
    #: The id of the task that has the object already; empty when this one got it.
    holder: str = ""


#: The call that this thread or greenlet is publishing.
_calling: ContextVar[Call | None] = ContextVar("celery_reliable_calling", default=None)


def is_member(options: Mapping[str, Any]) -> bool:
    """Whether *options* of `apply_async` are those of a canvas's member.

    Somebody waits for the very id of such a task, so it is published in any case.
    """
    return any(options.get(name) for name in _MEMBERSHIP)


@contextmanager
def calling(task_id: str, *, is_fresh: bool, is_unique: bool) -> Iterator[None]:
    """Let what is published inside under *task_id* be this call's."""
    token = _calling.set(Call(task_id, is_fresh, is_unique))
    try:
        yield
    finally:
        _calling.reset(token)


def _call_of(task_id: str) -> Call | None:
    call = _calling.get()
    return call if call is not None and call.task_id == task_id else None


def instead_of(task_id: str) -> str:
    """Return the id that the call gets: *task_id*, or that of the task that has the object."""
    call = _call_of(task_id)
    return (call and call.holder) or task_id


class Publication:
    """One publication of a task, and its record.  It is recognized by the task's id, because
    instrumentation may copy the headers.
    """

    def __init__(
        self,
        reliable: Reliable,
        task: Any,
        headers: dict[str, Any],
        object_key: str | None,
        if_exists: str = "",
    ) -> None:
        self.reliable = reliable
        self._task = task
        self.ref = task_ref(task, str(headers["id"]), headers)
        #: The headers that are sent.  The stamp is put into them.
        self.headers = headers
        #: Whether the ledger has answered.
        self.is_answered = False
        #: For how many seconds a ledger that is away is asked again.
        self.retry_seconds = 0.0
        attempt = running.get()
        is_own = (
            attempt is not None and attempt.claim.task_id == self.ref.id and not attempt.is_settled
        )
        #: The attempt that publishes its own task again, if one does.
        self.attempt = attempt if is_own else None
        #: What to do about a task that has the id already; an attempt's own id is its own.
        self._if_exists = "" if is_own else if_exists
        call = _call_of(self.ref.id)
        #: The call of a unique task that is being published, if it is one.
        self.unique = call if call is not None and call.is_unique and not is_own else None
        #: The object that it is about, if it is about one.
        self.object_key = object_key
        # What has an ETA takes its place when it begins, and a retry has kept its own.
        is_early = is_placed_early(task) and not is_own and not headers.get("eta")
        #: The object of which it takes a place as it is published.
        self.room = room_of(task, object_key) if is_early else None
        #: Whether it stands in the line of that, and is not to be sent.
        self.is_standing = False
        self._is_used = call is None or not call.is_fresh or not looks_used_once(self.ref.id)
        #: Names the publication; given when it is recorded.
        self.epoch = ""

    def is_of(self, headers: Any) -> bool:
        """Whether a message with these headers is this publication's."""
        return bool(headers) and str(headers.get("id")) == self.ref.id

    def sent_with(self, headers: dict[str, Any]) -> None:
        """Take the headers as they are sent: what its caller and instrumentation have added too."""
        self.headers = headers
        self.ref = task_ref(self._task, self.ref.id, headers)
        if self.room is not None:
            self.room = room_of(self._task, self.object_key, headers)

    def plan(self, options: dict[str, Any]) -> tuple[State, float]:
        """Return how the task begins, and after how many seconds somebody must look at it.

        In *options* of the publication it is said where it goes, if its task names workers.  Raises
        NotPublished and LedgerRefused when the ledger does not say which of those live.
        """
        patience = FOREVER if running.get() is not None else self.retry_seconds
        is_placed = place(
            self.reliable, self._task, self.ref, self.headers, options, patience_seconds=patience
        )
        config = self.reliable.config
        wait_seconds = seconds_until(self.headers.get("eta"))
        if wait_seconds <= config.eta_horizon_seconds and not is_placed:
            # A pass knows better who is alive, and sends it as soon as somebody is.
            return State.PARKED, 0.0
        if wait_seconds <= config.eta_horizon_seconds:
            return State.QUEUED, wait_seconds + config.queued_seconds
        look_seconds = wait_seconds - config.eta_horizon_seconds
        if self.headers.get("expires"):
            # It is sent no later than it expires, so that a worker reports that.
            look_seconds = min(look_seconds, seconds_until(self.headers["expires"]))
        return State.PARKED, look_seconds

    def record(
        self, to_text: Callable[[], str], state: State, look_seconds: float, queue: str = ""
    ) -> bool:
        """Record it; False when the ledger refuses, and nothing is to be sent.

        *queue*: the key of the list that the ledger puts the message into.  Raises NotPublished,
        PublishUnknown, LedgerRefused and TaskExists.
        """
        return self._may_send(self._record(to_text, state, look_seconds, queue))

    def _record(
        self, to_text: Callable[[], str], state: State, look_seconds: float, queue: str
    ) -> answers.RecordAnswer:
        ledger = self.reliable.ledger
        claim = self.attempt.claim if self.attempt else None
        waits_for = self.attempt.waits_for if self.attempt is not None else ""
        number = claim.attempt - bool(waits_for) if claim is not None else 0
        # What an attempt publishes is part of its outcome, which waits for the ledger.
        patience = (
            {"patience_seconds": FOREVER, "undone_patience_seconds": None}
            if running.get() is not None
            else {"patience_seconds": None, "undone_patience_seconds": self.retry_seconds}
        )
        self.epoch, moved = ledger.senders.new_epoch(number), ""
        while True:
            self.headers[HEADER] = Stamp(ledger.generation, self.epoch).of_task(self.ref.id)
            try:
                given: dict[str, Any] = {
                    "epoch": self.epoch,
                    "due_in_ms": int(look_seconds * 1000),
                    "message": to_text(),
                    "queue": queue,
                    "is_used": self._is_used and claim is None,
                    "heir": str(self.headers.get(HEIR) or ""),
                    "if_exists": self._if_exists,
                    **patience,
                }
                # What is sent later takes its place when it begins.
                if self.room is not None and state is State.QUEUED:
                    answer, placed = ledger.record_for_place(self.ref, self.room, **given)
                    self.is_standing = isinstance(placed, answers.Standing)
                else:
                    answer = ledger.record(
                        self.ref,
                        state=state,
                        claim=claim,
                        waits_for=waits_for,
                        moved=moved,
                        **given,
                    )
            except LedgerUnavailable as exc:
                raise not_recorded(self.ref, exc) from exc
            if isinstance(answer, answers.OtherGeneration):
                ledger.generation = answer.current
                continue
            if isinstance(answer, answers.NamesOthers):
                # The message may go where it goes: whoever may not run it sends it on.
                moved = answer.named
                rename(self.headers, moved)
                continue
            if isinstance(answer, answers.Unknown):
                # The server lost what this sender published before, or has long forgotten it.
                self.epoch = ledger.senders.new_epoch(number)
                continue
            ledger.senders.answered(self.epoch)
            self.is_answered = True
            if (
                claim is not None
                and self.attempt is not None
                and isinstance(answer, answers.NotCurrent)
                and is_forgotten(ledger, self.attempt)
            ):
                # The server lost the record of this attempt, so the task gets a new one.
                claim = None
                self.epoch = ledger.senders.new_epoch(number)
                continue
            return answer

    def _may_send(self, answer: answers.RecordAnswer) -> bool:
        if isinstance(answer, answers.Recorded):
            if self.attempt is not None:
                self.attempt.is_closed = True
            return True
        if isinstance(answer, answers.Anothers):
            raise exists(self.ref, answer)
        if isinstance(answer, answers.InUse) and self._if_exists:
            if self._if_exists == REFUSE:
                raise exists(self.ref, answer)
            return False
        # The id belongs to a task that is alive, or the attempt that publishes is no longer current
        # and must not change what its successor does.
        logger.info(
            "publication_refused name=%s id=%s reply=%s", self.ref.name, self.ref.id, answer.word
        )
        if isinstance(answer, answers.NotCurrent) and self.attempt is not None:
            self.attempt.is_closed = True
        return False


#: A caller outside of workers waits only so long for the withdrawal before it hears of the failure.
_PATIENCE_SECONDS = 2.0


def is_anothers(publication: Publication) -> bool:
    """Take the object of a unique task; True when nothing is to be sent, as another has it.

    Raises what `Publication.record` raises.
    """
    call, object_key = publication.unique, publication.object_key
    if call is None or object_key is None:
        return False
    try:
        holder = publication.reliable.locks.take(
            object_key,
            # What holds the object before any attempt was made.
            Claim(publication.ref.id, 0, "", publication.epoch),
            patience_seconds=FOREVER if running.get() is not None else None,
        )
    except (LedgerUnavailable, LedgerRefused) as exc:
        if not _is_withdrawn(publication, exc):
            return True
        if isinstance(exc, LedgerRefused):
            raise
        raise not_sent(publication.ref, exc) from exc
    if holder is None:
        return False
    if _is_withdrawn(publication, f"{holder} has its object"):
        call.holder = holder
    return True


def is_send_given_up(publication: Publication, exc: Exception) -> bool:
    """Decide what a send that raised means; True when the caller has to see the error.

    Raises PublishUnknown.
    """
    if publication.reliable.config.outbox:
        ref = publication.ref
        logger.warning("send_left_to_sweeper name=%s id=%s error=%s", ref.name, ref.id, exc)
        return False
    return _is_withdrawn(publication, exc)


def _is_withdrawn(publication: Publication, why: object) -> bool:
    """Take the publication back; False when somebody runs it already, or another call was answered
    with it: then the sweeper sends it.
    """
    name, task_id = publication.ref.name, publication.ref.id
    try:
        answer = publication.reliable.ledger.withdraw(
            task_id, publication.epoch, patience_seconds=_PATIENCE_SECONDS
        )
    except LedgerUnavailable as unavailable:
        attempt = running.get()
        if attempt is not None:
            attempt.in_doubt = {**(attempt.in_doubt or {}), task_id: unavailable.is_undone}
        raise PublishUnknown(
            f"Task {name}[{task_id}] could not be sent ({why}), and its record could not be "
            f"withdrawn ({unavailable}): it may run or not.",
            task_id=task_id,
        ) from (why if isinstance(why, Exception) else unavailable)
    # Otherwise the message has arrived and is claimed, or another call relies on it.
    return isinstance(answer, answers.Withdrawn)


def is_left(publication: Publication) -> bool:
    """Whether the attempt that runs has published this id before, and that is to stay.

    Celery, and who tells a chord, publish a callback or a body again after an error.  If the record
    of the first time is there, the sweeper sends it; if it is gone, and was not withdrawn, its task
    has ended.  To record it anew would have it run again.  Waits for the ledger as long as it
    takes; raises LedgerRefused.
    """
    attempt, ref = running.get(), publication.ref
    if attempt is None or not attempt.in_doubt or ref.id not in attempt.in_doubt:
        return False
    record = publication.reliable.ledger.find(ref.id, patience_seconds=FOREVER)
    # Not before it has answered: whoever is refused may try again.
    was_not_withdrawn = attempt.in_doubt.pop(ref.id)
    return was_not_withdrawn or record is not None
