"""One publication: recorded first, then sent, or both in one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

from celery import Celery
from celery.app.amqp import AMQP
from kombu import pools
from kombu.utils.json import dumps

from celery_reliable.app import Reliable, reliable_of, scheme_of
from celery_reliable.broker import keeping_transport, sending_transport_for, sending_with
from celery_reliable.compat import Part, require
from celery_reliable.compat.amqp import OpenAMQP, ask_before_sending
from celery_reliable.compat.app import may_yet_get
from celery_reliable.compat.connection import at_flush, is_batching
from celery_reliable.exceptions import ReliableError
from celery_reliable.message import Wire, as_published, prepared
from celery_reliable.model import State
from celery_reliable.publishing.errors import not_sent, outages, retry_seconds, unknown
from celery_reliable.publishing.publication import (
    Publication,
    is_anothers,
    is_left,
    is_send_given_up,
)

__all__ = [
    "PLACE",
    "ProducingAMQP",
    "RecordingProducer",
]

#: The transport option that tells where a producer of ours sends to.
PLACE = "reliable_queues_at"


class ProducingAMQP(OpenAMQP):
    """Celery's AMQP with producers that may send and record in one step."""

    def connection_class(self, own: Any) -> Any:
        """Return the class of the app's connections to its broker. *own*: that of the project."""
        return keeping_transport(own)

    @property
    def producer_pool(self) -> Any:
        """The producers of the app."""
        place = _queues_of(self.app) if self.producers_so_far is None else ""
        if place:
            require(Part.REDIS_PRODUCER)
            # kombu keeps a pool for each transport, so this one is used by our producers only.
            pool = pools.producers[_connection_to(self.app, place)]
            pool.limit = self.app.pool.limit
            self.producers_so_far = pool
        return super().producer_pool

    publisher_pool = producer_pool


def _connection_to(app: Celery, place: str) -> Any:
    options: dict[str, Any] = {"transport_options": {PLACE: place}}
    scheme = scheme_of(app.conf.broker_write_url)
    if scheme == "sentinel":
        options["failover_strategy"] = _stay
    return app.connection_for_write(transport=sending_transport_for(scheme), **options)


def _stay(urls: Sequence[str]) -> Iterator[str]:
    """Return where a connection goes on to when it is lost, behind Sentinels of these URLs.

    A channel asks all of them for its master.  With the URL of another, kombu would take another
    transport: it makes the connections of its pools by itself.
    """
    return repeat(urlsplit(urls[0]).hostname or "")


def _queues_of(app: Celery) -> str:
    try:
        return reliable_of(app).queues_at
    except ReliableError:
        # The publication of a task of ours raises this; other tasks must go on.
        return ""


def amqp_of(app: Celery) -> AMQP:
    """Return the AMQP of an app: Celery's own, as long as the app has no task of ours.

    An app learns of its tasks when it is finalized, and `send_task` publishes without that.  So an
    app that has declared one of ours is finalized before it sends anything.
    """
    amqp = AMQP(app)

    def prepare() -> bool:
        may_get = app.autofinalize and may_yet_get(app, _is_base_of_ours)
        if not may_get and not app.finalized:
            return True
        # An app is called finalized as soon as a thread begins to make its tasks: this waits.
        app.finalize(auto=True)
        return False

    ask_before_sending(amqp, prepare)
    return amqp


def _is_base_of_ours(base: Any) -> bool:
    return bool(getattr(base, "is_reliable", False))


class RecordingProducer:
    """A producer that records one publication before it sends it, and passes on all else."""

    def __init__(self, producer: Any, reliable: Reliable, publication: Publication) -> None:
        self._producer = producer
        self._reliable = reliable
        self._publication = publication
        self._is_seen = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> Any:
        """Record the publication, then send it; within a batch, when that is flushed."""
        publication = self._publication
        # The same producer also carries Celery's task-sent event.
        if not publication.is_of(options.get("headers")):
            return self._producer.publish(body, **options)
        self._is_seen = True
        if publication.attempt is None and is_batching(self._producer):
            # A caller may change the arguments before that.
            wire, options = prepared(self._producer, body, options)
            # Which task has the object is not known before, and the caller gets a result now.
            publication.unique = None
            late = partial(self._publish_late, wire, options)
            return at_flush(self._producer, publication.ref.id, late)
        return self._publish(body, options)

    def _publish_late(self, wire: Wire, options: dict[str, Any], is_retried: bool) -> Any:
        return self._publish(wire, options if is_retried else {**options, "retry": False})

    def _publish(self, body: Any, options: dict[str, Any]) -> Any:
        """Record the publication, then send it. *body*: a Wire if it is prepared already."""
        publication = self._publication
        if is_left(publication):
            return None
        publication.sent_with(options["headers"])
        publication.retry_seconds = retry_seconds(options)
        state, look_seconds = publication.plan(options)
        # A unique call is sent only once it has the object.
        is_plain = publication.attempt is None and publication.unique is None
        if is_plain and state is State.QUEUED and self._is_one_step(options):
            try:
                content = body.body if isinstance(body, Wire) else body
                return self._publish_in_one_step(content, options, look_seconds)
            except ReliableError:
                raise
            except outages(self._producer.connection):
                if publication.is_answered:
                    # It is in its queue.  What failed came after that.
                    return None
                # kombu's own connection failed, and was retried for as long as the caller waits.
                # The ledger may be there all the same.  If it is not, the call raises what the
                # ledger's answer means.
                publication.retry_seconds = 0.0
        wire = body
        if not isinstance(wire, Wire):
            wire, options = prepared(self._producer, body, options)
        envelope = as_published(wire, options)
        if (
            not publication.record(envelope.to_text, state, look_seconds)
            or is_anothers(publication)
            or publication.is_standing
            or state is State.PARKED
        ):
            return None
        if publication.attempt is not None:
            # Sent when the attempt has ended; another worker would run it beside this attempt.
            publication.attempt.unsent = envelope
            return None
        return self._send(wire.body, options)

    def _send(self, body: Any, options: dict[str, Any]) -> Any:
        """Send what is recorded."""
        try:
            return self._producer.publish(body, **options)
        except Exception as exc:
            if not is_send_given_up(self._publication, exc):
                return None
            if not isinstance(exc, outages(self._producer.connection)):
                raise
            raise not_sent(self._publication.ref, exc) from exc

    def raise_unless_seen(self) -> None:
        """Raise PublishUnknown when the sender has returned and never called `publish` with this
        publication: what it sent has no record.
        """
        if not self._is_seen:
            raise self._unrecorded("Whoever sends for this app does not use the given producer")

    def _unrecorded(self, why: str) -> Exception:
        ref = self._publication.ref
        return unknown(
            f"Task {ref.name}[{ref.id}] was not recorded. {why}, or without the task's id among "
            "the headers. It may run or not.",
            task_id=ref.id,
        )

    def _is_one_step(self, options: dict[str, Any]) -> bool:
        """Whether this goes to a list on the ledger's server, and to that alone."""
        exchange = options.get("exchange")
        if getattr(exchange, "name", exchange):
            return False
        given = getattr(self._producer.connection, "transport_options", None) or {}
        # A caller may pass the producer of another app, which sends to another place.
        return bool(given.get(PLACE)) and given[PLACE] == self._reliable.queues_at

    def _publish_in_one_step(self, body: Any, options: dict[str, Any], look_seconds: float) -> None:
        """Let kombu make the message, and record it with the sending."""

        def send(queue: str, message: dict[str, Any]) -> bool:
            if not self._publication.is_of(message.get("headers")):
                return False
            if not self._publication.is_answered:
                self._publication.headers = message["headers"]
                self._publication.record(lambda: dumps(message), State.QUEUED, look_seconds, queue)
            return True

        # kombu skips known entities too, but copies each first, which takes longer than sending.
        known = self._producer.connection.declared_entities
        options["declare"] = [e for e in options.get("declare") or () if hash(e) not in known]
        self._publication.is_answered = False
        with sending_with(send):
            self._producer.publish(body, **options)
        if not self._publication.is_answered:
            raise self._unrecorded("Its producer does not send through its own connection")
