"""One publication: recorded first, then sent, or both in one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu.utils.json import dumps

from celery_reliable import events
from celery_reliable.app import Reliable
from celery_reliable.broker import sending_with
from celery_reliable.compat.amqp import ask_before_sending
from celery_reliable.compat.app import may_yet_get
from celery_reliable.context import is_forgotten, running
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable, ReliableError
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.message import (
    HEADER,
    HEIR,
    Stamp,
    as_published,
    looks_used_once,
    prepared,
    seconds_until,
)
from celery_reliable.model import Claim, State
from celery_reliable.options import task_ref
from celery_reliable.publishing.errors import not_recorded, retry_seconds, unknown
from celery_reliable.publishing.producers import PLACE
from celery_reliable.publishing.unique import fresh_id, unique_call

__all__ = ["RecordingProducer"]

#: A sender outside of workers asks again only so long before it tells its caller.
_WITHDRAW_PATIENCE_SECONDS = 2.0


def amqp_of(app: Celery) -> AMQP:
    """Return the AMQP of an app: Celery's own, as long as the app has no task of ours.

    An app learns of its tasks when it is finalized, and `send_task` publishes without that.  So an
    app that has declared one of ours is finalized before it sends anything.
    """
    amqp = AMQP(app)

    def prepare() -> bool:
        if app.autofinalize and may_yet_get(app, _is_base_of_ours):
            app.finalize(auto=True)
        return not app.finalized

    if not app.finalized:
        ask_before_sending(amqp, prepare)
    return amqp


def _is_base_of_ours(base: Any) -> bool:
    return bool(getattr(base, "is_reliable", False))


class RecordingProducer:
    """Stands before a producer for one publication; what is not that publication passes through.

    The publication is known by the task's id: who instruments Celery may copy the headers.
    """

    def __init__(
        self,
        producer: Any,
        reliable: Reliable,
        task: Any,
        headers: dict[str, Any],
        object_key: str | None,
    ) -> None:
        self._producer = producer
        self._reliable = reliable
        self._ref = task_ref(task, str(headers["id"]))
        #: Those that are sent, with which the stamp goes.
        self._headers = headers
        #: The publication came by; the ledger has answered whether it is recorded.
        self._is_seen = self._is_answered = False
        attempt = running.get()
        is_own = (
            attempt is not None and attempt.claim.task_id == self._ref.id and not attempt.is_settled
        )
        self._attempt = attempt if is_own else None
        #: Names this publication, once it is recorded.
        self._epoch = ""
        call = unique_call.get()
        is_unique = call is not None and call.task_id == self._ref.id and self._attempt is None
        #: For how many seconds a server that takes nothing is asked again.
        self._retries = 0.0
        #: The call that is to have its object to itself, and the object.
        self._unique = call if is_unique else None
        self._object_key = object_key
        self._is_used = fresh_id.get() != self._ref.id or not looks_used_once(self._ref.id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> Any:
        """Record the publication, then send it."""
        # The same producer also carries Celery's task-sent event.
        if not self._is_ours(options.get("headers")):
            return self._producer.publish(body, **options)
        self._is_seen = True
        self._headers = options["headers"]
        self._retries = retry_seconds(options)
        state, look_seconds = self._plan()
        # Who is to have the object to himself sends when he has it.
        is_plain = self._attempt is None and self._unique is None
        if is_plain and state is State.QUEUED and self._is_one_step(options):
            try:
                return self._publish_in_one_step(body, options, look_seconds)
            except ReliableError:
                raise
            except Exception as exc:
                # kombu's own connection failed; the ledger may be there all the same.
                if not self._reliable.config.outbox:
                    raise
                events.sent_in_two_steps(name=self._ref.name, task_id=self._ref.id, error=exc)
        wire, options = prepared(self._producer, body, options)
        envelope = as_published(wire, options)
        answer = self._record(envelope.to_text, state, look_seconds)
        if not self._may_send(answer) or self._is_anothers() or state is State.PARKED:
            return None
        if self._attempt is not None:
            # Somebody else would run it beside what is left of this attempt.
            self._attempt.unsent = envelope
            return None
        try:
            return self._producer.publish(wire.body, **options)
        except Exception as exc:
            if self._is_send_given_up(exc):
                raise
            return None

    def raise_unless_seen(self) -> None:
        """Raise PublishUnknown when the publication did not come by, once its sender has returned:
        whatever was sent then has no record.
        """
        if not self._is_seen:
            raise self._unrecorded("Whoever sends for this app does not use the given producer")

    def _unrecorded(self, why: str) -> Exception:
        return unknown(
            f"Task {self._ref.name}[{self._ref.id}] was not recorded. {why}, or without the task's "
            "id among the headers. It may run or not.",
            task_id=self._ref.id,
        )

    def _is_ours(self, headers: Any) -> bool:
        return bool(headers) and str(headers.get("id")) == self._ref.id

    def _plan(self) -> tuple[State, float]:
        """Return how the task begins, and after how many seconds somebody must look at it."""
        config = self._reliable.config
        wait_seconds = seconds_until(self._headers.get("eta"))
        if wait_seconds <= config.eta_horizon_seconds:
            return State.QUEUED, wait_seconds + config.queued_seconds
        look_seconds = wait_seconds - config.eta_horizon_seconds
        if self._headers.get("expires"):
            # Sent when it expires, for a worker to say so.
            look_seconds = min(look_seconds, seconds_until(self._headers["expires"]))
        return State.PARKED, look_seconds

    def _is_one_step(self, options: dict[str, Any]) -> bool:
        """Whether this goes to a list on the ledger's server, and to that alone."""
        exchange = options.get("exchange")
        if getattr(exchange, "name", exchange):
            return False
        given = getattr(self._producer.connection, "transport_options", None) or {}
        # Not of another app's producer, which somebody may pass.
        return bool(given.get(PLACE)) and given[PLACE] == self._reliable.queues_at

    def _publish_in_one_step(self, body: Any, options: dict[str, Any], look_seconds: float) -> None:
        """Let kombu make the message, and record it with the sending."""

        def send(queue: str, message: dict[str, Any]) -> bool:
            if not self._is_ours(message.get("headers")):
                return False
            self._headers = message["headers"]
            answer = self._record(lambda: dumps(message), State.QUEUED, look_seconds, queue)
            self._may_send(answer)
            return True

        # As kombu finds out for itself, by a copy of each, which takes it longer than the sending.
        known = self._producer.connection.declared_entities
        options["declare"] = [e for e in options.get("declare") or () if hash(e) not in known]
        self._is_answered = False
        with sending_with(send):
            self._producer.publish(body, **options)
        if not self._is_answered:
            raise self._unrecorded("Its producer does not send through its own connection")

    def _record(
        self, to_text: Callable[[], str], state: State, look_seconds: float, queue: str = ""
    ) -> answers.RecordAnswer:
        ledger = self._reliable.ledger
        claim = self._attempt.claim if self._attempt else None
        waits_for = self._attempt.waits_for if self._attempt is not None else ""
        number = claim.attempt - bool(waits_for) if claim is not None else 0
        self._epoch = ledger.senders.new_epoch(number)
        while True:
            self._headers[HEADER] = str(Stamp(ledger.generation, self._epoch))
            try:
                answer = ledger.record(
                    self._ref,
                    epoch=self._epoch,
                    state=state,
                    due_in_ms=int(look_seconds * 1000),
                    message=to_text(),
                    claim=claim,
                    queue=queue,
                    is_used=self._is_used and claim is None,
                    heir=str(self._headers.get(HEIR) or ""),
                    waits_for=waits_for,
                    # What an attempt publishes is part of its outcome: that waits for the ledger.
                    patience_seconds=FOREVER if running.get() is not None else None,
                    undone_patience_seconds=None if running.get() is not None else self._retries,
                )
            except LedgerUnavailable as exc:
                raise not_recorded(self._ref, exc) from exc
            if isinstance(answer, answers.OtherGeneration):
                ledger.generation = answer.current
                continue
            if isinstance(answer, answers.Unknown):
                # The server lost what this sender published before, or has long forgotten it.
                self._epoch = ledger.senders.new_epoch(number)
                continue
            ledger.senders.answered(self._epoch)
            self._is_answered = True
            if (
                claim is not None
                and self._attempt is not None
                and isinstance(answer, answers.NotCurrent)
                and is_forgotten(ledger, self._attempt)
            ):
                # The server lost the record of the attempt that publishes: it begins a new one.
                claim = None
                self._epoch = ledger.senders.new_epoch(number)
                continue
            return answer

    def _may_send(self, answer: answers.RecordAnswer) -> bool:
        if isinstance(answer, answers.Recorded):
            if self._attempt is not None:
                self._attempt.is_closed = True
            return True
        # A live id is one task: this publication changes nothing; and an attempt that is no longer
        # current may not move what its successor does.
        events.publication_refused(name=self._ref.name, task_id=self._ref.id, reply=answer.word)
        if isinstance(answer, answers.NotCurrent) and self._attempt is not None:
            self._attempt.is_closed = True
        return False

    def _is_anothers(self) -> bool:
        """Take the object of a unique task; True when nothing is to be sent, as another has it."""
        if self._unique is None or self._object_key is None:
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
            self._unique.holder = holder
        return True

    def _as_holder(self) -> Claim:
        """What holds the object before any attempt was made."""
        return Claim(self._ref.id, 0, "", "")

    def _is_send_given_up(self, exc: Exception) -> bool:
        """Decide what a send that raised means; True when the caller has to see the error."""
        if self._reliable.config.outbox:
            events.send_left_to_sweeper(name=self._ref.name, task_id=self._ref.id, error=exc)
            return False
        return self._is_withdrawn(exc)

    def _is_withdrawn(self, why: object) -> bool:
        """Take the publication back; False when somebody runs it already, or another call was
        answered with it: then the sweeper sends it.
        """
        name, task_id = self._ref.name, self._ref.id
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
        # Otherwise somebody claimed it meanwhile: the message had arrived after all.  Or somebody
        # relies on it.
        return isinstance(answer, answers.Withdrawn)
