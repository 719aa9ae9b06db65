"""How an event is declared, and the one place that sends its signal, its event of Celery's and its
line in the log, and writes its note into the ledger.

An event is a function without a body: its name is the event's, its keyword arguments are the
fields, its docstring says when it happens.  Whoever calls it reports one::

    @Outlets(WARNING, note=("kind", "target"))
    def order_ended(*, app: Any, kind: str, target: str, by: str) -> None:
        \"\"\"An order has ended.\"\"\"

Some arguments are more than fields.  ``task`` is a Celery task: a line and a note have its name.
``app`` is who sends events of Celery's, ``is_failure_told`` whether Celery itself says how the task
ended.  ``task_id`` is ``id`` in the log and ``uuid`` in events of Celery's, as Celery calls it
there; ``worker`` is ``owner`` in these, as consumers keep who sent them under the first name.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, ParamSpec, Protocol

from celery.utils.dispatch import Signal

from celery_reliable.leases import nodename_of
from celery_reliable.log import logger

__all__ = [
    "DECLARED",
    "ERROR",
    "INFO",
    "IN_CELERY_EVENT",
    "IN_LOG",
    "SILENT",
    "WARNING",
    "Event",
    "Keep",
    "Outlets",
    "Sender",
    "Values",
    "send",
    "send_of_worker",
    "set_keeper",
    "set_sender",
    "through",
]

#: Sends an event of a kind with fields, if it is wanted.
Send = Callable[..., None]


class Sender(Protocol):
    """The worker in whose name this process sends events."""

    #: The node name, a slash, and an id that differs from start to start.
    base: str
    #: Of its main process.
    pid: int

    @property
    def sends_events(self) -> bool:
        """Whether it sends events of tasks just now."""


_send: ContextVar[Send | None] = ContextVar("celery_reliable_send", default=None)
_sender: Sender | None = None


def set_sender(worker: Sender | None) -> None:
    """Send events in the name of a worker from now on, also in the children that are forked."""
    global _sender
    _sender = worker


@contextmanager
def through(send: Send) -> Iterator[None]:
    """Send the events of this thread by *send*, instead of over a connection of the app's."""
    token = _send.set(send)
    try:
        yield
    finally:
        _send.reset(token)


def send(app: Any, kind: str, name: str, task_id: str, **fields: Any) -> None:
    """Send an event about a task, if somebody wants it.  Raises whatever connections raise."""
    # A consumer keeps the worker of a task by that name.
    assert "worker" not in fields
    task = app.tasks.get(name)
    if task is not None and not task.send_events:
        return
    own = _send.get()
    if own is not None:
        own(kind, uuid=task_id, name=name, **fields)
    elif _is_watched(app):
        _send_over_app(app, kind, uuid=task_id, name=name, **fields)


def send_of_worker(app: Any, kind: str, **fields: Any) -> None:
    """Send an event that is about no task, if somebody wants it and this process is a worker's: a
    monitor takes everybody else for a worker of that name.  Raises whatever connections raise.
    """
    if _sender is not None and _sender.sends_events:
        _send_over_app(app, kind, **fields)


def _is_watched(app: Any) -> bool:
    """Whether this process sends events of tasks: as its worker does, or as is set."""
    return _sender.sends_events if _sender is not None else bool(app.conf.worker_send_task_events)


def _send_over_app(app: Any, kind: str, **fields: Any) -> None:
    with app.amqp.producer_pool.acquire(block=True) as producer:
        # Celery's own way waits for the broker for ever, and the task would wait with it.
        producer.connection.ensure_connection(max_retries=1, interval_start=0)
        with app.events.Dispatcher(
            producer.connection,
            # In the worker's own name: a monitor takes any other name for one more worker.
            hostname=nodename_of(_sender.base) if _sender is not None else None,
            channel=producer.channel,
            buffer_while_offline=False,
        ) as dispatcher:
            if _sender is not None:
                # A monitor keeps it as the worker's, whichever process tells.
                dispatcher.pid = _sender.pid
            dispatcher.send(kind, **fields)


#: The level of an event without a line in the log.
SILENT = 0
INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR

P = ParamSpec("P")
Values = Mapping[str, Any]
#: Writes a note: of an app, the event's name, and its fields.
Keep = Callable[[Any, str, Values], None]

#: Arguments that are no fields; and what others are called in a line or a note, and in an event of
#: Celery's.
_NOT_SHOWN = frozenset({"app", "is_failure_told"})
IN_LOG = {"task_id": "id", "task": "name"}
IN_CELERY_EVENT = {"worker": "owner"}

#: Every event by its name.
DECLARED: dict[str, Event[Any]] = {}

_keep: Keep | None = None


def set_keeper(keep: Keep | None) -> Keep | None:
    """Let *keep* write the notes from now on, or nobody; return who did it before."""
    global _keep
    before, _keep = _keep, keep
    return before


@dataclass(frozen=True)
class Outlets:
    """Where an event goes.

    Attributes:
        level: of its line in the log, or what chooses one of `levels` by the fields.  An event of
            which that chooses SILENT is not noted either.
        sender: the argument that is the sender of its signal.
        signal: the arguments that its signal has besides; None: there is no signal.
        celery_event: the arguments that Celery's event has besides uuid and name; None: there is
            none.
        celery_kind: its type; empty: the event's name with dashes.
        note: the arguments that its note in the ledger has; None: there is none.  Never an argument
            of a task, and no text that may have one, as an exception's may.
        levels: the possible ones, if *level* chooses.
    """

    level: int | Callable[[Values], int]
    sender: str = ""
    signal: tuple[str, ...] | None = None
    celery_event: tuple[str, ...] | None = None
    celery_kind: str = ""
    note: tuple[str, ...] | None = None
    levels: tuple[int, ...] = ()

    def __call__(self, function: Callable[P, None]) -> Event[P]:
        """Make an event of a function that has arguments and a docstring, and no body."""
        event = DECLARED[function.__name__] = Event(function, self)
        return event


class Event(Generic[P]):
    """One kind of event.  Called with its fields, it reports one.

    Attributes:
        name: in the log, of the signal, and in the notes.
        when: a sentence or more.
        outlets: where it goes.
        fields: the names of its arguments that are fields, in their order.
        signal: None: it has none.
        celery_kind: the type of Celery's event.
    """

    def __init__(self, function: Callable[P, None], outlets: Outlets) -> None:
        arguments = inspect.signature(function).parameters
        self.name = function.__name__
        self.when = inspect.getdoc(function) or ""
        self.outlets = outlets
        self.celery_kind = outlets.celery_kind or self.name.replace("_", "-")
        self.fields = [name for name in arguments if name not in _NOT_SHOWN]
        self.signal: Any = None
        if outlets.signal is not None:
            self.signal = Signal(name=self.name, providing_args=set(outlets.signal))
        self._defaults = {
            name: one.default for name, one in arguments.items() if one.default is not one.empty
        }

    def __call__(self, *args: P.args, **given: P.kwargs) -> None:
        """Report one."""
        values: dict[str, Any] = {**self._defaults, **given}
        to = self.outlets
        level = to.level(values) if callable(to.level) else to.level
        if level != SILENT:
            shown = self._shown(values)
            line = " ".join([self.name, *(f"{key}=%s" for key in shown)])
            # The line shows the caller of the event.
            logger.log(level, line, *shown.values(), stacklevel=2)
        if "task" in values:
            task = values["task"]
            values.update(name=task.name, app=task.app)
        if to.signal is not None:
            told = {name: _plain(values[name]) for name in to.signal}
            self.signal.send(sender=values[to.sender], **told)
        if to.celery_event is not None:
            self._send_celery_events(values, to.celery_event)
        if to.note is not None and (level != SILENT or not callable(to.level)):
            self._note(values, to.note)

    def _shown(self, values: Values) -> dict[str, object]:
        shown: dict[str, object] = {}
        for name in self.fields:
            if name == "report":
                shown.update(values[name].done())
            else:
                shown[IN_LOG.get(name, name)] = (
                    values[name].name if name == "task" else values[name]
                )
        return shown

    def _send_celery_events(self, values: Values, names: tuple[str, ...]) -> None:
        app, name, task_id = values["app"], values.get("name", ""), values.get("task_id", "")
        fields = {IN_CELERY_EVENT.get(one, one): _plain(values[one]) for one in names}
        kinds = [(self.celery_kind, fields)]
        if values.get("is_failure_told") is False:
            # Celery's own, which says how the task ended.
            kinds.insert(0, ("task-failed", {"exception": values["exception"], "traceback": ""}))
        for kind, told in kinds:
            try:
                if task_id:
                    send(app, kind, name, task_id, **told)
                else:
                    send_of_worker(app, kind, **told)
            except Exception as exc:
                # It is not sent later.
                logger.info("event_not_sent event=%s id=%s error=%s", kind, task_id, exc)

    def _note(self, values: Values, names: tuple[str, ...]) -> None:
        about = {IN_LOG.get(name, name): _plain(values[name]) for name in names}
        if "report" in about:
            about["report"] = values["report"].done()
        try:
            if _keep is not None:
                _keep(values["app"], self.name, about)
        except Exception as exc:
            # What happened has happened: that nobody can ask for it later must not undo it.
            logger.info("not_noted event=%s error=%s", self.name, exc)


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value
