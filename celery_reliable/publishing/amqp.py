"""Publishing: every publication of an app goes through the ledger.

There is one point through which Celery publishes every task (`delay`, `apply_async`, `send_task`,
canvas, beat, `retry`, `replace`): ``app.amqp.send_task_message``.  `install` puts itself around it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

from celery import Celery, current_task
from celery.app.amqp import AMQP
from kombu import pools

from celery_reliable.app import reliable_of, scheme_of
from celery_reliable.broker import keeping_transport, sending_transport_for
from celery_reliable.compat import Part, require
from celery_reliable.compat.amqp import OpenAMQP, keep_chord_headers, send_anew
from celery_reliable.compat.app import give_part, tasks_so_far
from celery_reliable.compat.result_consumer import subscribe_when_awaited
from celery_reliable.context import running
from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.message import HEIR, NAMED, check_limits, id_as_text
from celery_reliable.options import CALL, is_reliable, key_of, take_call, take_if_exists
from celery_reliable.publishing.carriers import CARRIERS, TWINS, chord_header, protected
from celery_reliable.publishing.placement import named_anew
from celery_reliable.publishing.publication import PLACE, Publication

__all__ = [
    "RecordingAMQP",
    "carry_on",
    "install",
]

_CARRIED = (NAMED, CALL, HEIR)


def carry_on(name: str, message: Mapping[str, Any], options: MutableMapping[str, Any]) -> None:
    """Add our headers of the message that runs to the *options* of its retry.

    Celery passes all headers on, unless one of them is called "headers": then it passes on what is
    in that one.  Instrumentation puts its own there (https://github.com/celery/celery/issues/4875).

    *message*: the headers of the retry, as Celery has made them.
    """
    request = current_task.request if current_task else None
    if request is None or request.id != message.get("id") or current_task.name != name:
        return
    found = {key: request.get(key) for key in _CARRIED if request.get(key) is not None}
    # Else it is published anew, or replaced.
    if found and message.get("retries", 0) > (request.retries or 0):
        options["headers"] = {**found, **(options.get("headers") or {})}


class RecordingAMQP(OpenAMQP):
    """Celery's AMQP with the record before every send, or in one step with it."""

    def sender_around(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that records each task of ours, and sends it by *send*."""

        def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
            attempt = running.get()
            if attempt is not None and (attempt.is_replaced or message.headers.get("retries")):
                attempt.goes_on = True
            task = tasks_so_far(self.app).get(name)
            if (task is None or name in CARRIERS) and (self.app.finalized or self.app.autofinalize):
                # Makes the tasks, or waits for the thread that is making them.
                self.app.finalize(auto=True)
                task = tasks_so_far(self.app).get(name)
            called = name
            if name in CARRIERS:
                task = protected(self.app, name, message, options)
            elif name in TWINS:
                # A retry.  Workers without the package know the other name.
                name = message.headers["task"] = TWINS[name]
            if task is None or is_reliable(task):
                if message.headers.get("retries"):
                    carry_on(called, message.headers, options)
                named_anew(options)
                take_call(name, options)
                # What its worker would refuse is refused here.
                check_limits(message.headers.get("timelimit"))
                _give_text_id(message)
            if_exists = take_if_exists(name, options, is_known=is_reliable(task))
            # A message of protocol 1 has no headers to stamp; its claim makes its record.
            if not is_reliable(task) or not message.headers.get("id"):
                return send(producer, name, message, **options)
            reliable = reliable_of(self.app)
            if reliable.is_unprotected:
                reliable.tell_unprotected()
                return send(producer, name, message, **options)
            # Raises ObjectIdError if the call lacks the argument that names the object.
            key = key_of(task, message.body[0], message.body[1])
            publication = Publication(producer, reliable, task, message.headers, key, if_exists)
            sent = send(publication, name, message, **options)
            publication.raise_unless_seen()
            return sent

        return send_task_message

    @cached_property
    def Connection(self) -> Any:  # noqa: N802
        """The class of the app's connections to its broker."""
        return keeping_transport(super().Connection, scheme_of(reliable_of(self.app).broker_url))

    def new_producers(self) -> Any:
        """Return producers that record and send in one step, where that can be."""
        try:
            place = reliable_of(self.app).queues_at
        except ReliableError:
            # The publication of a task of ours raises this; other tasks must go on.
            return None
        if not place:
            return None
        require(Part.REDIS_PRODUCER)
        scheme = scheme_of(self.app.conf.broker_write_url)
        connection = self.app.connection_for_write(
            transport=sending_transport_for(scheme),
            transport_options={PLACE: place},
            failover_strategy=_stay if scheme == "sentinel" else None,
        )
        # kombu keeps a pool for each transport, so this one is used by our producers only.
        pool = pools.producers[connection]
        pool.limit = self.app.pool.limit
        return pool


def _stay(urls: Sequence[str]) -> Iterator[str]:
    """Return where a connection goes on to when it is lost, behind Sentinels of these URLs.

    A channel asks all of them for its master.  With the URL of another, kombu would take another
    transport: it makes the connections of its pools by itself.
    """
    return repeat(urlsplit(urls[0]).hostname or "")


def amqp_of(app: Celery) -> AMQP:
    """Return the AMQP of an app: Celery's own, as long as the app has no task of ours.

    An app learns of its tasks when it is finalized, and `send_task` publishes without that.  So
    every app is finalized before it sends anything, unless it must not be (`autofinalize`).
    """
    amqp = AMQP(app)

    def send_task_message(*args: Any, **options: Any) -> Any:
        if not (app.finalized or app.autofinalize):
            return AMQP.send_task_message.func(amqp)(*args, **options)
        # An app is called finalized as soon as a thread begins to make its tasks: this waits.
        app.finalize(auto=True)
        if amqp.__dict__.get("send_task_message") is send_task_message:
            amqp.__dict__.pop("send_task_message", None)
        return amqp.send_task_message(*args, **options)

    # Where Celery keeps what it sends with: so the class stays Celery's own.
    amqp.__dict__["send_task_message"] = send_task_message
    return amqp


def install(app: Celery) -> None:
    """Make *app* record the reliable tasks that it publishes.  Repeating it changes nothing.

    Raises ConfigurationError if the installed Celery lacks a name that this needs, or the project's
    own AMQP class sends in another way.
    """
    require(Part.PRODUCER)
    if not isinstance(app.amqp, RecordingAMQP):
        # A method of a project's class would send without what `sender_around` returns.
        cls = type(app.amqp)
        if not isinstance(inspect.getattr_static(cls, "send_task_message"), cached_property):
            raise ConfigurationError(
                f"{cls.__module__}.{cls.__qualname__} overrides send_task_message, so its tasks "
                "would be sent without records. Override _create_task_sender instead, and let it "
                "return a function that calls what super()._create_task_sender() returns."
            )
        give_part(app, "amqp", f"{__name__}:{RecordingAMQP.__name__}")
        # The sender and the producers that it made before do not record.
        send_anew(app.amqp)
        subscribe_when_awaited(app)
        keep_chord_headers(chord_header)


def _give_text_id(message: Any) -> None:
    """Let a message have its id as text, as its record has it.  Raises TypeError if it has none."""
    headers, properties, body, sent_event = message
    told = body if isinstance(body, dict) else headers
    task_id = told.get("id")
    if not task_id or type(task_id) is str:
        return
    text = id_as_text(task_id)
    for fields in (told, properties, sent_event or {}):
        for name in ("id", "root_id", "correlation_id", "uuid"):
            if fields.get(name) == task_id:
                fields[name] = text
