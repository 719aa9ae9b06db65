"""Publications: each is recorded before it is sent, or in one step with that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from kombu.utils.json import dumps

from celery_reliable.app import Reliable
from celery_reliable.broker import sending_with
from celery_reliable.context import is_forgotten, running
from celery_reliable.exceptions import LedgerUnavailable, ReliableError
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.message import (
    HEADER,
    HEIR,
    NAMED,
    Stamp,
    address_of,
    as_published,
    looks_used_once,
    prepared,
    seconds_until,
)
from celery_reliable.model import Room, State
from celery_reliable.options import CALL, REFUSE, room_of, task_ref
from celery_reliable.publishing.placement import place
from celery_reliable.publishing.sending import (
    NotPublished,
    PublishUnknown,
    exists,
    not_sent,
    outages,
    retry_seconds,
)
from celery_reliable.scoped import scoped

__all__ = ["MAY_WAIT", "PLACE", "Call", "Publication", "calling", "instead_of", "is_member"]

#: The transport option that tells where a producer of ours sends to.
PLACE = "reliable_queues_at"
#: The headers of a message whose task may have to wait before it is claimed.
MAY_WAIT = ("eta", NAMED, CALL)
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
#: Inside, what is published under the id of a `Call` belongs to that call.
calling = partial(scoped, _calling)


def is_member(options: Mapping[str, Any]) -> bool:
    """Whether *options* of `apply_async` are those of a canvas's member.

    Somebody waits for the very id of such a task, so it is published in any case.
    """
    return any(options.get(name) for name in _MEMBERSHIP)


def _call_of(task_id: str) -> Call | None:
    call = _calling.get()
    return call if call is not None and call.task_id == task_id else None


def instead_of(task_id: str) -> str:
    """Return the id that the call gets: *task_id*, or that of the task that has the object."""
    call = _call_of(task_id)
    return (call and call.holder) or task_id


#: How long a call waits for a task whose outcome is being stored.
_CONCLUDING_SECONDS = 2.0
_CONCLUDING_POLL_SECONDS = 0.01
#: A caller outside of workers waits only so long for the withdrawal before it hears of the failure.
_PATIENCE_SECONDS = 2.0


class Publication:
    """One publication of a task: a producer that records it before it sends it, or with that, and
    passes on all else.

    It is recognized by the task's id, because instrumentation may copy the headers.
    """

    def __init__(
        self,
        producer: Any,
        reliable: Reliable,
        task: Any,
        headers: dict[str, Any],
        object_key: str | None,
        if_exists: str = "",
    ) -> None:
        self._producer = producer
        self._is_seen = False
        self.reliable = reliable
        self._task = task
        self.ref = task_ref(task, str(headers["id"]), headers)
        #: The headers that are sent.  The stamp is put into them.
        self.headers = headers
        #: Whether the ledger has answered.
        self.is_answered = False
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
        self._object_key = object_key
        # What has an ETA takes its place when it begins, and a retry has kept its own.
        is_early = type(task).place == "queued" and not is_own and not headers.get("eta")
        self._takes_place = is_early or self.unique is not None
        #: The object of which it takes a place as it is published.
        self.room: Room | None = None
        self._is_used = call is None or not call.is_fresh or not looks_used_once(self.ref.id)

    def is_of(self, headers: Any) -> bool:
        """Whether a message with these headers is this publication's."""
        return bool(headers) and str(headers.get("id")) == self.ref.id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> Any:
        """Record the publication, then send it."""
        # The same producer also carries Celery's task-sent event.
        if not self.is_of(options.get("headers")):
            return self._producer.publish(body, **options)
        self._is_seen = True
        if self._is_left():
            return None
        # As they are sent: its caller and instrumentation may have added some.
        self.headers = options["headers"]
        self.ref = task_ref(self._task, self.ref.id, self.headers)
        if self._takes_place:
            self.room = room_of(self._task, self._object_key, self.headers)
        #: For how many seconds a ledger that is away is asked again.
        self.retry_seconds = retry_seconds(options)
        state, look_seconds = self._plan(options)
        if self._is_one_step(options, state):
            try:
                return self._publish_in_one_step(body, options, state, look_seconds)
            except ReliableError:
                raise
            except outages(self._producer.connection):
                if self.is_answered:
                    # It is in its queue.  What failed came after that.
                    return None
                # kombu's own connection failed, and was retried for as long as the caller waits.
                # The ledger may be there all the same.  If it is not, the call raises what the
                # ledger's answer means.
                self.retry_seconds = 0.0
        body, options = prepared(self._producer, body, options)
        envelope = as_published(body, options)
        is_recorded = self.record(envelope.to_text, state, look_seconds)
        if not is_recorded or state is State.WAITING:
            return None
        if self.attempt is not None:
            # Sent when the attempt has ended; another worker would run it beside this attempt.
            self.attempt.unsent = envelope
            return None
        return self._send(body, options)

    def _send(self, body: Any, options: dict[str, Any]) -> Any:
        """Send what is recorded."""
        try:
            return self._producer.publish(body, **options)
        except Exception as exc:
            name, task_id = self.ref.name, self.ref.id
            if self.reliable.config.outbox:
                logger.warning("send_left_to_sweeper name=%s id=%s error=%s", name, task_id, exc)
                return None
            if not self._is_withdrawn(exc):
                return None
            if not isinstance(exc, outages(self._producer.connection)):
                raise
            raise not_sent(self.ref, exc) from exc

    def raise_unless_seen(self) -> None:
        """Raise PublishUnknown when the sender has returned and never called `publish` with this
        publication: what it sent has no record.
        """
        if not self._is_seen:
            raise self._unrecorded("Whoever sends for this app does not use the given producer")

    def _unrecorded(self, why: str) -> Exception:
        ref = self.ref
        return PublishUnknown(
            f"Task {ref.name}[{ref.id}] was not recorded. {why}, or without the task's id among "
            "the headers. It may run or not.",
            task_id=ref.id,
        )

    def _is_one_step(self, options: dict[str, Any], state: State) -> bool:
        """Whether this goes to a list on the ledger's server, to that alone, and now."""
        queue = self.reliable.app.amqp.queues.get(options.get("routing_key"))
        declared = (queue, *(options.get("declare") or ()))
        given = getattr(self._producer.connection, "transport_options", None) or {}
        return (
            self.attempt is None
            and not address_of(options)[0]
            # Where a task goes that names workers is known when it is sent.
            and (state is State.QUEUED or NAMED not in self.headers)
            # Kombu keeps a queue that expires from that, as kombu puts the message there.
            and not any(getattr(one, "expires", None) for one in declared)
            # A caller may pass the producer of another app, which sends to another place.
            and bool(given.get(PLACE))
            and given[PLACE] == self.reliable.queues_at
        )

    def _publish_in_one_step(
        self, body: Any, options: dict[str, Any], state: State, look_seconds: float
    ) -> None:
        """Let kombu make the message, and record it with the sending, or where it is to be sent."""

        def send(queue: str, message: dict[str, Any]) -> bool:
            if not self.is_of(message.get("headers")):
                return False
            if not self.is_answered:
                self.headers = message["headers"]
                self.record(lambda: dumps(message), state, look_seconds, queue)
            return True

        # kombu skips known entities too, but copies each first, which takes longer than sending.
        known = self._producer.connection.declared_entities
        options["declare"] = [e for e in options.get("declare") or () if hash(e) not in known]
        self.is_answered = False
        with sending_with(send):
            self._producer.publish(body, **options)
        if not self.is_answered:
            raise self._unrecorded("Its producer does not send through its own connection")

    def _plan(self, options: dict[str, Any]) -> tuple[State, float]:
        """Return how the task begins, and after how many seconds somebody must look at it.

        In *options* of the publication it is said where it goes, if its task names workers.  Raises
        NotPublished and LedgerRefused when the ledger does not say which of those live.
        """
        patience = FOREVER if running.get() is not None else self.retry_seconds
        is_placed = place(
            self.reliable, self._task, self.ref, self.headers, options, patience_seconds=patience
        )
        wait_seconds = seconds_until(self.headers.get("eta"))
        # An attempt has to end before its own task goes on.  Of one that no living worker may run
        # a pass knows better who is alive.
        if self.attempt is None and (wait_seconds or not is_placed):
            return State.WAITING, wait_seconds
        return State.QUEUED, wait_seconds + self.reliable.config.queued_seconds

    def record(
        self, to_text: Callable[[], str], state: State, look_seconds: float, queue: str = ""
    ) -> bool:
        """Record it; False when nothing is to be sent: the ledger refuses, or the task stands in
        the line of its object.

        *queue*: the key of the list that the ledger puts the message into.  Raises NotPublished,
        PublishUnknown, LedgerRefused and TaskExists.
        """
        answer = self._record(to_text, state, look_seconds, queue)
        is_recorded = isinstance(answer, answers.Recorded | answers.Standing)
        if isinstance(answer, answers.Anothers) or (
            isinstance(answer, answers.InUse) and self._if_exists == REFUSE
        ):
            raise exists(self.ref, answer)
        if self.attempt is not None:
            # An attempt that is no longer current must not change what its successor does.
            self.attempt.is_closed |= is_recorded or isinstance(answer, answers.NotCurrent)
        is_kept = isinstance(answer, answers.InUse) and self._if_exists
        if not (is_recorded or is_kept or isinstance(answer, answers.LockedBy | answers.KeptFor)):
            # The id belongs to a task that is alive, or the attempt is no longer current.
            logger.info(
                "publication_refused name=%s id=%s reply=%s",
                self.ref.name,
                self.ref.id,
                answer.word,
            )
        return isinstance(answer, answers.Recorded)

    def _record(
        self, to_text: Callable[[], str], state: State, look_seconds: float, queue: str
    ) -> answers.RecordAnswer:
        ledger = self.reliable.ledger
        claim = self.attempt.claim if self.attempt else None
        number = claim.attempt if claim is not None else 0
        # What an attempt publishes is part of its outcome, which waits for the ledger.
        waits = running.get() is not None
        # The epoch names the publication.
        self.epoch = ledger.senders.new_epoch(number)
        unique, deadline = "1" if self.unique is not None else "", 0.0
        while True:
            self._stamp(Stamp(ledger.generation, self.epoch).of_task(self.ref.id))
            try:
                # What is sent later takes its place when it begins.
                is_placed = self.unique is not None or state is State.QUEUED
                answer = ledger.record(
                    self.ref,
                    epoch=self.epoch,
                    state=state,
                    claim=claim,
                    due_in_ms=math.ceil(look_seconds * 1000),
                    message=to_text(),
                    queue=queue,
                    is_used=self._is_used and claim is None,
                    heir=str(self.headers.get(HEIR) or ""),
                    if_exists=self._if_exists,
                    room=self.room if is_placed else None,
                    unique=unique,
                    patience_seconds=FOREVER if waits else None,
                    undone_patience_seconds=None if waits else self.retry_seconds,
                )
            except LedgerUnavailable as exc:
                text = f"Task {self.ref.name}[{self.ref.id}] could not be recorded: {exc}"
                error = NotPublished if exc.is_undone else PublishUnknown
                raise error(text, task_id=self.ref.id) from exc
            if isinstance(answer, answers.OtherGeneration):
                ledger.generation = answer.current
                continue
            if isinstance(answer, answers.Unknown):
                # The server lost what this sender published before, or has long forgotten it.
                self.epoch = ledger.senders.new_epoch(number)
                continue
            ledger.senders.answered(self.epoch)
            self.is_answered = True
            if isinstance(answer, answers.Concluding | answers.StillStopping):
                if isinstance(answer, answers.StillStopping):
                    # It is sent without the object, and its attempt asks for that.
                    self.room, unique = None, ""
                else:
                    # Its caller may have seen the outcome; usually its hooks still run.
                    deadline = deadline or time.monotonic() + _CONCLUDING_SECONDS
                    unique = "2" if time.monotonic() >= deadline else "1"
                    time.sleep(_CONCLUDING_POLL_SECONDS)
                self.epoch = ledger.senders.new_epoch(number)
                continue
            if self.unique is not None and isinstance(answer, answers.KeptFor | answers.LockedBy):
                self.unique.holder = answer.task_id
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

    def _stamp(self, text: str) -> None:
        """Give the message its stamp: as the first header if `take` is to claim the task, as the
        last if its task may have to wait before it is claimed (`SpecialTasks.may_wait`).
        """
        self.headers.pop(HEADER, None)
        others = dict(self.headers)
        if not any(map(others.get, MAY_WAIT)):
            self.headers.clear()
        self.headers.update({HEADER: text, **others})

    def _is_withdrawn(self, why: object) -> bool:
        """Take the publication back; False when somebody runs it already, or another call was
        answered with it: then the sweeper sends it.
        """
        name, task_id = self.ref.name, self.ref.id
        try:
            answer = self.reliable.ledger.withdraw(
                task_id, self.epoch, patience_seconds=_PATIENCE_SECONDS
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
        return isinstance(answer, answers.Cancelled)

    def _is_left(self) -> bool:
        """Whether the attempt that runs has published this id before, and that is to stay.

        Celery, and who tells a chord, publish a callback or a body again after an error.  If the
        record of the first time is there, the sweeper sends it; if it is gone, and was not
        withdrawn, its task has ended.  To record it anew would have it run again.  Waits for the
        ledger as long as it takes; raises LedgerRefused.
        """
        attempt, ref = running.get(), self.ref
        if attempt is None or not attempt.in_doubt or ref.id not in attempt.in_doubt:
            return False
        record = self.reliable.ledger.find(ref.id, patience_seconds=FOREVER)
        # Not before it has answered: whoever is refused may try again.
        was_not_withdrawn = attempt.in_doubt.pop(ref.id)
        return was_not_withdrawn or record is not None
