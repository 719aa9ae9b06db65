"""One publication: recorded first, then sent, or both in one step."""

from __future__ import annotations

from typing import Any

from kombu.utils.json import dumps

from celery_reliable.app import Reliable
from celery_reliable.broker import sending_with
from celery_reliable.compat.connection import at_flush, is_batching
from celery_reliable.exceptions import ReliableError
from celery_reliable.message import as_published, prepared
from celery_reliable.model import State
from celery_reliable.publishing.errors import PublishUnknown, not_sent, outages, retry_seconds
from celery_reliable.publishing.publication import (
    Publication,
    is_anothers,
    is_left,
    is_send_given_up,
)

__all__ = [
    "PLACE",
    "RecordingProducer",
]

#: The transport option that tells where a producer of ours sends to.
PLACE = "reliable_queues_at"


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
            data, options = prepared(self._producer, body, options)
            # Which task has the object is not known before, and the caller gets a result now.
            publication.unique = None

            def publish(is_retried: bool) -> Any:
                return self._publish(data, options if is_retried else {**options, "retry": False})

            return at_flush(self._producer, publication.ref.id, publish)
        return self._publish(body, options)

    def _publish(self, body: Any, options: dict[str, Any]) -> Any:
        """Record the publication, then send it. *body*: bytes if it is prepared already."""
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
                return self._publish_in_one_step(body, options, look_seconds)
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
        if not isinstance(body, bytes):
            body, options = prepared(self._producer, body, options)
        envelope = as_published(body, options)
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
        return self._send(body, options)

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
        return PublishUnknown(
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
