"""Publishing: every publication of an app goes through the ledger.

There is one point through which Celery publishes every task (`delay`, `apply_async`, `send_task`,
canvas, beat, `retry`, `replace`): ``app.amqp.send_task_message``.  `install` puts itself around it.
What a call of one of Celery's own tasks carries (a canvas in a group, say) decides how that call is
published.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

from celery import Celery, current_task
from celery.app.amqp import AMQP
from kombu import pools

from celery_reliable.app import reliable_of, scheme_of
from celery_reliable.broker import keeping_transport, sending_transport_for
from celery_reliable.compat import Part, note, noted, require
from celery_reliable.compat.app import (
    OpenAMQP,
    give_part,
    send_anew,
    tasks_so_far,
)
from celery_reliable.compat.backend import subscribe_when_awaited
from celery_reliable.context import running
from celery_reliable.exceptions import ConfigurationError, ReliableError
from celery_reliable.message import HEIR, NAMED, check_limits, id_as_text
from celery_reliable.options import (
    CALL,
    OPTIONS,
    TaskOptions,
    is_reliable,
    key_of,
    take_call,
    take_if_exists,
)
from celery_reliable.publishing.placement import named_anew
from celery_reliable.publishing.publication import PLACE, Publication

__all__ = ["CARRIERS", "TWINS", "add_twins", "install"]

#: The names of their reliable twins.  Messages have Celery's own names, as workers without the
#: package run them too; workers with it know a twin's by the stamp.
CARRIERS = {
    f"celery.{name}": f"celery_reliable.{name}"
    for name in ("accumulate", "chord", "chord_unlock", "chunks", "group", "map", "starmap")
}
#: The same from the other side.
TWINS = {twin: name for name, twin in CARRIERS.items()}
#: They call a task themselves.  The others publish it.
_CALLING = ("celery.map", "celery.starmap")
#: The arguments that have what is carried, with their positions.
_CARRIED = {
    "celery.chain": {"tasks": 0},
    "celery.chord": {"header": 0, "body": 1},
    "celery.chord_unlock": {"callback": 1},
    "celery.chunks": {"task": 0},
    "celery.group": {"tasks": 0},
    "celery.map": {"task": 0},
    "celery.starmap": {"task": 0},
}

#: What a reliable task has in another way than Celery's own.
_OF_BASE = ("is_reliable", "acks_late", "reject_on_worker_lost", "Request")

#: The headers that a task's own publications get from the task.
_CARRIED_HEADERS = (NAMED, CALL, HEIR)


def add_twins(app: Celery, base: Any) -> None:
    """Give an app the reliable twins, which run the calls that carry a reliable task, once.

    *base*: the class of reliable tasks.
    """
    add = partial(_add, base)
    with reliable_of(app).mutex:
        if noted(app, "twins"):
            # Whoever publishes before they are there makes them.
            return
        note(app, "twins", add)
    # Celery makes its own tasks when the app is finalized.  Before they are looked for, as another
    # thread may finalize the app between the two.
    app.on_after_finalize.connect(add, weak=False)
    if CARRIERS.keys() <= tasks_so_far(app).keys():
        # Waits for a thread that is at it, which goes through the tasks.
        app.finalize(auto=True)
        add(app)


def _add(base: Any, sender: Celery, **_: Any) -> None:
    # Not `tasks`, whose lock another thread may hold that waits for this one to finalize the app.
    tasks: Any = tasks_so_far(sender)
    # Two threads would take the one's strategy for Celery's own.
    with reliable_of(sender).mutex:
        for name, twin in CARRIERS.items():
            if twin in tasks:
                continue
            own = type(tasks[name])
            bases = (own,) if issubclass(own, base) else (base, own)
            made = {
                # Options of the app's base are of its own tasks: a chord has no object.
                **{option: getattr(TaskOptions, option) for option in OPTIONS},
                **{option: getattr(base, option) for option in _OF_BASE},
                "app": sender,
                "name": twin,
                "Strategy": own.Strategy,
                "run": inspect.getattr_static(own, "run"),
                # A task that is bound already gets no request stack of its own.
                "__bound__": False,
                "__module__": own.__module__,
            }
            # It binds itself.
            task = type(own.__name__, bases, made)()
            # The message decides which of two tasks it is for; Celery goes by the name.
            own.Strategy = "celery_reliable.worker.request:strategy"
            tasks.register(task)


def protected(app: Celery, name: str, message: Any, options: MutableMapping[str, Any]) -> Any:
    """Return the reliable twin of a task of Celery's own if the call that is published carries a
    reliable task, or has the id of one; else the task itself.
    """
    tasks = tasks_so_far(app)
    if not message.headers.get("id"):
        return tasks.get(name)
    task = next(_reliable(tasks, name, message.body[0], message.body[1]), None)
    if task is None and HEIR not in (options.get("headers") or {}):
        return tasks.get(name)
    if name in _CALLING and task is not None and type(task).max_losses is not None:
        options.setdefault("max_losses", type(task).max_losses)
    if CARRIERS[name] not in tasks:
        # Another thread is about to make them, or has just begun to bind the app's first task.
        if task is not None:
            task.bind(app)
        noted(app, "twins")(app)
    return tasks[CARRIERS[name]]


def _reliable(
    tasks: Mapping[str, Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Any]:
    """Yield the reliable tasks that a call of a task of Celery's own carries."""
    for argument, position in _CARRIED.get(name, {}).items():
        yield from _of_each(tasks, kwargs.get(argument, (*args, None, None)[position]))


def _of_each(tasks: Mapping[str, Any], carried: Any) -> Iterator[Any]:
    """Yield the reliable tasks of a signature, or of several."""
    for one in carried if isinstance(carried, Sequence) else (carried,):
        if not isinstance(one, Mapping):
            continue
        name = str(one.get("task"))
        if name in _CARRIED:
            yield from _reliable(tasks, name, one.get("args") or (), one.get("kwargs") or {})
        elif is_reliable(tasks.get(name)):
            yield tasks[name]


def _carry_on(name: str, message: Mapping[str, Any], options: MutableMapping[str, Any]) -> None:
    """Add our headers of the message that runs to the *options* of its retry.

    Celery passes all headers on, unless one of them is called "headers": then it passes on what is
    in that one.  Instrumentation puts its own there (https://github.com/celery/celery/issues/4875).

    *message*: the headers of the retry, as Celery has made them.
    """
    request = current_task.request if current_task else None
    if request is None or request.id != message.get("id") or current_task.name != name:
        return
    found = {key: request.get(key) for key in _CARRIED_HEADERS if request.get(key) is not None}
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
                    _carry_on(called, message.headers, options)
                named_anew(options)
                take_call(name, options)
                # What its worker would refuse is refused here.
                check_limits(message.headers.get("timelimit"))
                _give_text_id(message)
            if_exists = take_if_exists(name, options, is_known=is_reliable(task))
            if not is_reliable(task):
                return send(producer, name, message, **options)
            _refuse_protocol_1(name, message)
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


def _refuse_protocol_1(name: str, message: Any) -> None:
    if not message.headers.get("id"):
        raise ConfigurationError(
            f"Task {name} was not published: Celery's protocol 1 (task_protocol = 1) has no "
            "headers, so nobody could recognize the message. Set task_protocol = 2."
        )


def _give_text_id(message: Any) -> None:
    """Let a message have its id as text, as its record has it.  Raises TypeError if it has none."""
    headers, properties, body, sent_event = message
    for fields in (body if isinstance(body, dict) else headers, properties, sent_event or {}):
        for name in ("id", "root_id", "correlation_id", "uuid"):
            if type(fields.get(name)) not in (str, type(None)):
                fields[name] = id_as_text(fields[name])
