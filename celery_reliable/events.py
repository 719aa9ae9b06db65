"""How an event is declared, and the one place that sends its signal, its event of Celery's and its
line in the log, and writes its note into the ledger.

An event is a function without a body: its name is the event's, its keyword arguments are the
fields, its docstring says when it happens.  Whoever calls it reports one::

    @event(WARNING)
    def order_ended(*, app: Any, kind: str, target: str, by: str) -> None:
        \"\"\"An order has ended.\"\"\"

Some arguments are more than fields.  ``task`` is a Celery task: a line and a note have its name.
``app`` is who sends events of Celery's, ``is_failure_told`` whether Celery itself says how the task
ended.  ``task_id`` is ``id`` in the log and ``uuid`` in events of Celery's, as Celery calls it
there; ``worker`` is ``owner`` in these, as consumers keep who sent them under the first name.

The line in the log has all fields, the signal all but its sender and the task's name, Celery's
event all.  The note has all but an exception, whose text may have an argument of a task.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from enum import Enum
from typing import Any, Generic, ParamSpec, Protocol

from celery.utils.dispatch import Signal

from celery_reliable.app import reliable_of
from celery_reliable.leases import nodename_of
from celery_reliable.log import logger
from celery_reliable.model import Cause, Reason, SweepReport
from celery_reliable.scoped import scoped

__all__ = ["DECLARED", "Event", "set_sender", "through"]

#: Sends an event of a kind with fields, if it is wanted.
Send = Callable[..., None]


class Sender(Protocol):
    """The worker in whose name this process sends events."""

    #: The node name, a slash, and an id that differs from start to start.
    base: str
    #: Of its main process.
    pid: int
    #: Whether it sends events of tasks just now.
    sends_events: bool


_own_way: ContextVar[Send | None] = ContextVar("celery_reliable_send", default=None)
_sender: Sender | None = None


def set_sender(worker: Sender | None) -> None:
    """Send events in the name of a worker from now on, also in the children that are forked."""
    global _sender
    _sender = worker


def through(send: Send) -> AbstractContextManager[None]:
    """Send the events of this thread by *send*, instead of over a connection of the app's."""
    return scoped(_own_way, send)


def _send(app: Any, name: str, task_id: str, kind: str, fields: Mapping[str, Any]) -> None:
    """Send an event of Celery's, if somebody wants it; *task_id* is empty if it is about no task.

    One that cannot be sent is logged, and not sent later.
    """
    own, task = _own_way.get(), app.tasks.get(name)
    if task is not None and not task.send_events:
        return
    about = {**fields, "uuid": task_id, "name": name} if task_id else fields
    # Outside of workers a monitor would take what is about no task for one more worker's.
    is_set = bool(task_id) and app.conf.worker_send_task_events
    try:
        if own is not None and task_id:
            own(kind, **about)
        elif _sender.sends_events if _sender is not None else is_set:
            _send_over_app(app, kind, about)
    except Exception as exc:
        logger.info("event_not_sent event=%s id=%s error=%s", kind, task_id, exc)


def _send_over_app(app: Any, kind: str, fields: Mapping[str, Any]) -> None:
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


#: Levels of an event without a line in the log, and of one that has no note either.
SILENT, SIGNAL_ONLY = 0, -1
INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR

P = ParamSpec("P")
Values = Mapping[str, Any]

#: Arguments that are no fields; and what others are called in a line or a note, and in an event of
#: Celery's.
_NOT_SHOWN = frozenset({"app", "is_failure_told"})
IN_LOG = {"task_id": "id"}
IN_CELERY_EVENT = {"worker": "owner"}

#: Every event by its name.
DECLARED: dict[str, Event[Any]] = {}


def event(
    level: int | Callable[[Values], int],
    *,
    sender: str = "",
    celery_kind: str = "",
) -> Callable[[Callable[P, None]], Event[P]]:
    """Make an event of a function that has arguments and a docstring, and no body.

    Args:
        level: of its line in the log, or what chooses one by the fields.
        sender: the argument that is the sender of its signal; empty: it has none.
        celery_kind: the type of Celery's event; empty: it has none.
    """

    return lambda function: Event(function, level, sender, celery_kind)


class Event(Generic[P]):
    """One kind of event, as `event` makes it.  Called with its fields, it reports one.

    Attributes:
        name: in the log, of the signal, and in the notes.
        when: a sentence or more.
        fields: the names of its fields, in the order of its arguments; ``of_signal`` and the like:
            those that go there.
        signal: None: it has none.
    """

    def __init__(
        self,
        function: Callable[P, None],
        level: int | Callable[[Values], int],
        sender: str,
        celery_kind: str,
    ) -> None:
        arguments = inspect.signature(function).parameters
        self.name = function.__name__
        self.when = inspect.getdoc(function) or ""
        self.level, self.sender, self.celery_kind = level, sender, celery_kind
        self.fields = [
            "name" if name == "task" else name for name in arguments if name not in _NOT_SHOWN
        ]
        self.of_signal = [name for name in self.fields if name not in ("name", sender)]
        self.of_celery_event = [name for name in self.fields if name not in ("name", "task_id")]
        # No text that may have an argument of a task.
        self.of_note = [name for name in self.fields if name != "exception"]
        signal = Signal(name=self.name, providing_args=set(self.of_signal))
        self.signal: Any = signal if sender else None
        DECLARED[self.name] = self
        self._defaults = {
            name: one.default for name, one in arguments.items() if one.default is not one.empty
        }

    def __call__(self, *args: P.args, **given: P.kwargs) -> None:
        """Report one."""
        values: dict[str, Any] = {**self._defaults, **given}
        if "task" in values:
            values.update(name=values["task"].name, app=values["task"].app)
        shown = {**values, "report": values["report"].done()} if "report" in values else values
        level = self.level(values) if callable(self.level) else self.level
        if level > SILENT:
            line = _told(shown, self.fields, IN_LOG)
            line.update(line.pop("report", {}))
            text = " ".join([self.name, *(f"{key}=%s" for key in line)])
            # The line shows the caller of the event.
            logger.log(level, text, *line.values(), stacklevel=2)
        if self.signal is not None:
            self.signal.send(sender=values[self.sender], **_told(values, self.of_signal))
        if self.celery_kind:
            self._send_celery_events(values)
        if level != SIGNAL_ONLY:
            self._note(values["app"], _told(shown, self.of_note, IN_LOG))

    def _send_celery_events(self, values: Values) -> None:
        app, name, task_id = values["app"], values.get("name", ""), values.get("task_id", "")
        if values.get("is_failure_told") is False:
            # Celery's own, which says how the task ended.
            failure = {"exception": values["exception"], "traceback": ""}
            _send(app, name, task_id, "task-failed", failure)
        fields = _told(values, self.of_celery_event, IN_CELERY_EVENT)
        _send(app, name, task_id, self.celery_kind, fields)

    def _note(self, app: Any, about: Values) -> None:
        try:
            reliable = reliable_of(app)
            if not reliable.is_unprotected:
                reliable.ledger.happenings.note(self.name, about)
        except Exception as exc:
            # What happened has happened: that nobody can ask for it later must not undo it.
            logger.info("not_noted event=%s error=%s", self.name, exc)


def _told(
    values: Values, names: Iterable[str], called: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return fields as they are called somewhere, without enums."""
    renamed = called or {}
    plain = {name: values[name] for name in names}
    return {
        renamed.get(name, name): value.value if isinstance(value, Enum) else value
        for name, value in plain.items()
    }


@event(WARNING, sender="name", celery_kind="task-lost")
def task_lost(
    *,
    app: Any,
    name: str,
    task_id: str,
    attempt: int,
    losses: int,
    is_counted: bool = True,
    cause: Cause,
    worker: str,
    exception: str = "",
) -> None:
    """An attempt ended without an outcome.  The worker's main process sends this, or the process
    that sweeps.  If the worker died, and the loss is not counted against this task, ``is_counted``
    is false.
    """


@event(SILENT, sender="name", celery_kind="task-recovered")
def task_recovered(
    *, app: Any, name: str, task_id: str, attempt: int, losses: int, worker: str
) -> None:
    """An attempt begins after a loss.  The process that runs the task sends this."""


@event(WARNING, sender="task", celery_kind="task-fenced")
def task_fenced(*, task: Any, task_id: str, attempt: int, state: str) -> None:
    """An attempt that is no longer current tried to end.  The process that ran it sends this.
    ``state`` is the state of the task: "taken" if another attempt runs it, "gone" if it has ended.
    """


@event(WARNING)
def task_turned_away(*, app: Any, name: str, task_id: str, worker: str) -> None:
    """A worker received a task that names other workers (``only_workers``).  It did not begin the
    task, which is sent to one of those workers.
    """


@event(INFO)
def task_waits_for_worker(*, app: Any, name: str, task_id: str, workers: str) -> None:
    """No worker that may run a task (``only_workers``) is alive.  The task waits in the ledger."""


def _of_burial(values: Values) -> int:
    # If the task itself failed, Celery has logged more.
    return WARNING if values["reason"] in (Reason.FAILED, Reason.REJECTED) else ERROR


@event(_of_burial, sender="name", celery_kind="task-buried")
def task_buried(
    *,
    app: Any,
    name: str,
    task_id: str,
    reason: Reason,
    attempt: int = 0,
    losses: int = 0,
    exception: str = "",
    is_failure_told: bool = False,
) -> None:
    """A task became a dead letter.  ``name`` is empty if the message is no task's; ``attempt`` is
    the last one (0: none was made).  Celery's ``task-failed`` is sent before this event, unless
    Celery itself sends one that says how the task ended.
    """


@event(INFO, sender="name")
def dead_letter_replayed(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator put a dead letter back into its queue."""


@event(INFO)
def dead_letter_discarded(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator removed a dead letter for good."""


@event(INFO, sender="task", celery_kind="task-skipped")
def task_skipped(*, task: Any, task_id: str, holder: str) -> None:
    """A task with ``on_conflict="skip"`` was skipped, as another task, ``holder``, has its object.
    The process that skipped it sends this.
    """


@event(INFO)
def task_struck(*, task: Any, task_id: str, order: str) -> None:
    """A task was about to begin that an operator has struck.  It waits until the order ends."""


@event(WARNING)
def stopped_by_order(*, task: Any, task_id: str, order: str) -> None:
    """A running task is stopped by an order.  That counts as no loss, and the task runs again."""


@event(INFO)
def worker_registered(*, app: Any, worker: str) -> None:
    """A worker has its lease: for the first time, or anew after it was declared dead."""


@event(INFO)
def worker_left(*, app: Any, worker: str) -> None:
    """A worker that holds nothing any more ends, and gave back its lease."""


@event(WARNING, sender="worker", celery_kind="worker-declared")
def worker_declared_dead(*, app: Any, worker: str, cause: str) -> None:
    """The sweeper declared a worker dead.  ``cause`` is "lapsed" or "connection".  The process that
    sweeps sends this; Celery's event is sent only if that is a worker, in its own name.
    """


#: Fields of a report that do not show work.
_LOOKING = frozenset({"looked_at", "oldest_overdue_seconds", "duration_seconds", "is_full"})


def _of_pass(values: Values) -> int:
    return WARNING if values["report"].done().keys() - _LOOKING else SIGNAL_ONLY


@event(_of_pass, sender="app")
def pass_finished(*, app: Any, report: SweepReport) -> None:
    """A pass of the sweeper ended.  The process that swept sends this.  ``report`` is a
    `model.SweepReport`.  A pass that found nothing to do has no line in the log and no note.
    """


@event(WARNING)
def order_given(
    *,
    app: Any,
    kind: str,
    target: str,
    object_id: str | None,
    by: str,
    why: str,
    order: str,
) -> None:
    """An operator has paused a queue, struck a task or drained a worker."""


@event(WARNING)
def order_ended(*, app: Any, kind: str, target: str, by: str, order: str) -> None:
    """An order has ended; ``by`` is empty if its time was over.  What waited for it comes back."""
