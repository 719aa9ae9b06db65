"""The record of one publication: made before or with the sending, and withdrawn when that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from celery_reliable import events
from celery_reliable.app import Reliable
from celery_reliable.context import is_forgotten, running
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.message import (
    HEADER,
    HEIR,
    NAMED,
    NamedWorkers,
    Stamp,
    looks_used_once,
    seconds_until,
)
from celery_reliable.model import Claim, Room, State
from celery_reliable.options import (
    REFUSE,
    in_force,
    is_placed_early,
    patterns_of,
    room_of,
    task_ref,
)
from celery_reliable.publishing.errors import exists, not_recorded, unknown
from celery_reliable.publishing.placement import placed, placed_member
from celery_reliable.publishing.unique import fresh_id, unique_call

__all__ = ["Publication"]

#: A caller outside of workers waits only so long for the withdrawal before it hears of the failure.
_WITHDRAW_PATIENCE_SECONDS = 2.0


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
        self._reliable = reliable
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
        call = unique_call.get()
        is_unique = call is not None and call.task_id == self.ref.id and self.attempt is None
        #: The call of a unique task that is being published, if it is one.
        self.unique = call if is_unique else None
        self._object_key = object_key
        # What has an ETA takes its place when it begins, and a retry has kept its own.
        is_early = is_placed_early(task) and not is_own and not headers.get("eta")
        #: The object of which it takes a place as it is published.
        self.room = room_of(task, object_key) if is_early else None
        #: Whether it stands in the line of that, and is not to be sent.
        self.is_standing = False
        self._is_used = fresh_id.get() != self.ref.id or not looks_used_once(self.ref.id)
        #: Names the publication; given when it is recorded.
        self._epoch = ""

    def is_of(self, headers: Any) -> bool:
        """Whether a message with these headers is this publication's."""
        return bool(headers) and str(headers.get("id")) == self.ref.id

    def sent_with(self, headers: dict[str, Any]) -> None:
        """Take the headers as they are sent: what its caller and instrumentation have added too."""
        self.headers = headers
        self.ref = task_ref(self._task, self.ref.id, headers)
        if self.room is not None:
            self.room = room_of(self._task, self._object_key, headers)

    def _place(self, options: dict[str, Any]) -> bool:
        """Let a task that only some workers may run, or that some should, go to one of those; False
        when none is alive, and it has to wait.
        """
        named = _named_workers(self._task, self.headers)
        if named is None:
            return True
        if not any(named.home):
            exchange = options.get("exchange") or ""
            home = (str(getattr(exchange, "name", exchange)), options.get("routing_key") or "")
            named = replace(named, home=home)
        patience = FOREVER if running.get() is not None else self.retry_seconds
        try:
            living = self._reliable.living.now(patience_seconds=patience)
            if named.run:
                runs = self._reliable.ledger.runs
                place = placed_member(runs, self.ref.id, named, living, patience_seconds=patience)
            else:
                place = placed(named, living)
        except LedgerUnavailable as exc:
            raise not_recorded(self.ref, exc) from exc
        if place is None:
            self.headers[NAMED] = named.as_header()
            return False
        place.put(options)
        return True

    def _rename(self, moved: str) -> None:
        """Let the message name the workers that an operator has named meanwhile."""
        before = NamedWorkers.of(self.headers)
        self.headers.pop(NAMED, None)
        named = NamedWorkers.from_text(moved)
        if named.is_any_named:
            home = before.home if before is not None else ("", "")
            self.headers[NAMED] = replace(named, home=home).as_header()

    def plan(self, options: dict[str, Any]) -> tuple[State, float]:
        """Return how the task begins, and after how many seconds somebody must look at it.

        In *options* of the publication it is said where it goes, if its task names workers.  Raises
        NotPublished and LedgerRefused when the ledger does not say which of those live.
        """
        is_placed = self._place(options)
        config = self._reliable.config
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
        ledger = self._reliable.ledger
        claim = self.attempt.claim if self.attempt else None
        waits_for = self.attempt.waits_for if self.attempt is not None else ""
        number = claim.attempt - bool(waits_for) if claim is not None else 0
        self._epoch, moved = ledger.senders.new_epoch(number), ""
        while True:
            self.headers[HEADER] = str(Stamp(ledger.generation, self._epoch))
            try:
                # What is sent later takes its place when it begins.
                if self.room is not None and state is State.QUEUED:
                    answer = self._record_for_place(self.room, to_text(), look_seconds, queue)
                else:
                    answer = ledger.record(
                        self.ref,
                        epoch=self._epoch,
                        state=state,
                        due_in_ms=int(look_seconds * 1000),
                        message=to_text(),
                        claim=claim,
                        queue=queue,
                        is_used=self._is_used and claim is None,
                        heir=str(self.headers.get(HEIR) or ""),
                        waits_for=waits_for,
                        moved=moved,
                        if_exists=self._if_exists,
                        **self._patience(),
                    )
            except LedgerUnavailable as exc:
                raise not_recorded(self.ref, exc) from exc
            if isinstance(answer, answers.OtherGeneration):
                ledger.generation = answer.current
                continue
            if isinstance(answer, answers.NamesOthers):
                # The message may go where it goes: whoever may not run it sends it on.
                moved = answer.named
                self._rename(moved)
                continue
            if isinstance(answer, answers.Unknown):
                # The server lost what this sender published before, or has long forgotten it.
                self._epoch = ledger.senders.new_epoch(number)
                continue
            ledger.senders.answered(self._epoch)
            self.is_answered = True
            if (
                claim is not None
                and self.attempt is not None
                and isinstance(answer, answers.NotCurrent)
                and is_forgotten(ledger, self.attempt)
            ):
                # The server lost the record of this attempt, so the task gets a new one.
                claim = None
                self._epoch = ledger.senders.new_epoch(number)
                continue
            return answer

    def _record_for_place(
        self, room: Room, message: str, look_seconds: float, queue: str
    ) -> answers.RecordAnswer:
        answer, placed = self._reliable.ledger.record_for_place(
            self.ref,
            room,
            epoch=self._epoch,
            due_in_ms=int(look_seconds * 1000),
            message=message,
            queue=queue,
            is_used=self._is_used,
            heir=str(self.headers.get(HEIR) or ""),
            if_exists=self._if_exists,
            **self._patience(),
        )
        self.is_standing = isinstance(placed, answers.Standing)
        return answer

    def _patience(self) -> dict[str, float | None]:
        # What an attempt publishes is part of its outcome, which waits for the ledger.
        if running.get() is not None:
            return {"patience_seconds": FOREVER, "undone_patience_seconds": None}
        return {"patience_seconds": None, "undone_patience_seconds": self.retry_seconds}

    def _may_send(self, answer: answers.RecordAnswer) -> bool:
        if isinstance(answer, answers.Recorded):
            if self.attempt is not None:
                self.attempt.is_closed = True
            return True
        if isinstance(answer, answers.InUse) and self._if_exists:
            if self._if_exists == REFUSE:
                raise exists(self.ref, answer)
            return False
        # The id belongs to a task that is alive, or the attempt that publishes is no longer current
        # and must not change what its successor does.
        events.publication_refused(name=self.ref.name, task_id=self.ref.id, reply=answer.word)
        if isinstance(answer, answers.NotCurrent) and self.attempt is not None:
            self.attempt.is_closed = True
        return False

    def is_anothers(self) -> bool:
        """Take the object of a unique task; True when nothing is to be sent, as another has it."""
        if self.unique is None or self._object_key is None:
            return False
        try:
            holder = self._reliable.locks.take(
                self._object_key,
                self._as_holder(),
                patience_seconds=FOREVER if running.get() is not None else None,
            )
        except (LedgerUnavailable, LedgerRefused) as exc:
            if self._is_withdrawn(exc):
                raise
            return True
        if holder is None:
            return False
        if self._is_withdrawn(f"{holder} has its object"):
            self.unique.holder = holder
        return True

    def _as_holder(self) -> Claim:
        """What holds the object before any attempt was made."""
        return Claim(self.ref.id, 0, "", self._epoch)

    def is_send_given_up(self, exc: Exception) -> bool:
        """Decide what a send that raised means; True when the caller has to see the error."""
        if self._reliable.config.outbox:
            events.send_left_to_sweeper(name=self.ref.name, task_id=self.ref.id, error=exc)
            return False
        return self._is_withdrawn(exc)

    def _is_withdrawn(self, why: object) -> bool:
        """Take the publication back; False when somebody runs it already, or another call was
        answered with it: then the sweeper sends it.
        """
        name, task_id = self.ref.name, self.ref.id
        try:
            answer = self._reliable.ledger.withdraw(
                task_id, self._epoch, patience_seconds=_WITHDRAW_PATIENCE_SECONDS
            )
        except LedgerUnavailable as unavailable:
            raise unknown(
                f"Task {name}[{task_id}] could not be sent ({why}), and its record could not be "
                f"withdrawn ({unavailable}): it may run or not.",
                task_id=task_id,
            ) from (why if isinstance(why, Exception) else unavailable)
        # Otherwise the message has arrived and is claimed, or another call relies on it.
        return isinstance(answer, answers.Withdrawn)


def _named_workers(task: Any, headers: Mapping[str, Any]) -> NamedWorkers | None:
    """Return which workers may run a call of *task*; None: any.

    A retry has the header of the message before it, in which an operator may have named others.
    """
    found = NamedWorkers.of(headers)
    if found is not None:
        return found
    only = patterns_of(in_force(task, "only_workers", headers))
    prefer = patterns_of(in_force(task, "prefer_workers", headers))
    if not only and not prefer:
        return None
    return NamedWorkers(only, prefer, in_force(task, "else_queue", headers) or "")
