"""How an event is declared, and the one place from which its line in the log, its signal and its
event of Celery's are sent, and its note in the ledger.

An event is a function without a body: its name is the event's, its keyword arguments are the
fields, its docstring says when it happens.  Whoever calls it tells of it::

    @declared(WARNING)
    def clock_stepped_back(*, seconds: float) -> None:
        \"\"\"The clock of the ledger's Redis was set back.\"\"\"

A line of the log is the event's name and its fields, ``name key=value …``, always in one line, and
without the passwords of URLs.  All of them come from the logger ``celery_reliable``.

Some arguments are more than fields.  ``task`` is a Celery task: its name is told.  ``app`` is who
sends events of Celery's, ``is_failure_told`` whether Celery itself says how the task ended.
``task_id`` is ``id`` in the log and ``uuid`` in events of Celery's, as Celery calls it there;
``worker`` is ``owner`` in these, as consumers keep who sent them under the first name.

Nothing of Celery is imported here: the ledger has events too.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, ParamSpec

from celery_reliable.events import celery_events, noting
from celery_reliable.exceptions import ReliableError, said

__all__ = [
    "DEBUG",
    "DECLARED",
    "ERROR",
    "INFO",
    "SILENT",
    "WARNING",
    "Event",
    "as_shown",
    "declared",
    "logger",
]

logger = logging.getLogger("celery_reliable")

#: The level of an event without a line in the log.
SILENT = 0
DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

P = ParamSpec("P")
Values = Mapping[str, Any]
#: Decides by the fields which of an event's levels a line has.
Choose = Callable[[Values], int]

#: Arguments that are no fields of a line.
_NOT_SHOWN = frozenset({"app", "is_failure_told"})
_IN_LOG = {"task_id": "id", "task": "name"}
_IN_CELERY_EVENT = {"worker": "owner"}
_LONGEST_ERROR = 500

#: Packages whose errors are about a server or a connection, not about a fault in this process.
_OUTSIDE = frozenset({"amqp", "kombu", "redis"})
#: Up to the last "@": a password that is not quoted may contain one.
_PASSWORD = re.compile(r"(?<=://)[^\s'\"]*(?=@)|(?i:(?<=password=))[^&\s'\"]+")

#: Every event by its name.
DECLARED: dict[str, Event[Any]] = {}


class Event(Generic[P]):
    """One kind of event.  Called with its fields, it tells of one.

    Attributes:
        name: in the log, and of the signal.
        module: where it is declared.
        levels: of its lines in the log; SILENT: there is none.
        fields: the keys of a line, in their order.
        when: a sentence or more.
        sender: the argument that is the sender of its signal.
        in_signal: what its signal has besides; None: it has no signal.
        in_celery_event: what Celery's event has besides uuid and name; None: there is none.
        celery_kind: the type of Celery's event.
        in_note: what its note in the ledger has; None: there is none.
        counted_by: the argument by whose values it is counted apart; empty: it is counted as one.
        fields_of_celery_event: the same, as it is called there.
        fields_of_note: the keys of its note.
        signal: set by `celery_reliable.signals`; before that is imported nobody is connected.
    """

    def __init__(
        self,
        function: Callable[P, None],
        levels: tuple[int, ...],
        *,
        choose: Choose | None,
        with_traceback: bool,
        sender: str,
        in_signal: tuple[str, ...] | None,
        in_celery_event: tuple[str, ...] | None,
        celery_kind: str,
        in_note: tuple[str, ...] | None,
        counted_by: str,
        is_noted: Callable[[Values], bool],
        shown: Mapping[str, Callable[[Any], object]],
    ) -> None:
        arguments = inspect.signature(function).parameters
        self.name = function.__name__
        self.module = function.__module__
        self.levels = levels
        self.when = inspect.getdoc(function) or ""
        self.with_traceback = with_traceback
        self.in_signal = in_signal
        self.in_celery_event = in_celery_event
        self.celery_kind = celery_kind or self.name.replace("_", "-")
        self.in_note = in_note
        self.counted_by = counted_by
        self._is_noted = is_noted
        self.signal: Any = None
        self._choose: Choose = choose or (lambda values: levels[0])
        self.sender = sender
        self._as = {"task": _name_of, **shown}
        self._shown = [name for name in arguments if name not in _NOT_SHOWN]
        self.fields = [_IN_LOG.get(name, name) for name in self._shown]
        self.fields_of_celery_event = [
            _IN_CELERY_EVENT.get(name, name) for name in in_celery_event or ()
        ]
        self.fields_of_note = [_IN_LOG.get(name, name) for name in in_note or ()]
        self._defaults = {
            name: one.default for name, one in arguments.items() if one.default is not one.empty
        }

    def __call__(self, *args: P.args, **given: P.kwargs) -> None:
        """Tell of one."""
        values: dict[str, Any] = {**self._defaults, **given}
        level = self._choose(values)
        if level != SILENT and logger.isEnabledFor(level):
            self._log(level, values)
        if "task" in values:
            task = values["task"]
            values.update(name=task.name, app=task.app)
        if self.in_signal is not None and self.signal is not None:
            told = {name: _plain(values[name]) for name in self.in_signal}
            self.signal.send(sender=values[self.sender], **told)
        if self.in_celery_event is not None:
            self._send_celery_events(values, self.in_celery_event)
        if self.in_note is not None and self._is_noted(values):
            self._keep_note(values, self.in_note)

    def _log(self, level: int, values: Values) -> None:
        keys: list[str] = []
        shown: list[object] = []
        for name in self._shown:
            value = self._as[name](values[name]) if name in self._as else values[name]
            if isinstance(value, Mapping):
                keys += value
                shown += value.values()
            else:
                keys.append(_IN_LOG.get(name, name))
                shown.append(value)
        line = " ".join([self.name, *(f"{key.replace('%', '%%')}=%s" for key in keys)])
        error = values.get("error") if self.with_traceback else None
        has_traceback = isinstance(error, BaseException) and not _is_outside(error)
        # The line shows the caller of the event, which is two frames further out.
        logger.log(
            level,
            line,
            *map(as_shown, shown),
            exc_info=error if has_traceback else None,
            stacklevel=3,
        )

    def _send_celery_events(self, values: Values, names: tuple[str, ...]) -> None:
        app, name, task_id = values["app"], values.get("name", ""), values.get("task_id", "")
        plain = (_plain(values[one]) for one in names)
        fields = dict(zip(self.fields_of_celery_event, plain, strict=True))
        kinds = [(self.celery_kind, fields)]
        if values.get("is_failure_told") is False:
            # Celery's own, which says how the task ended.
            kinds.insert(0, ("task-failed", {"exception": values["exception"], "traceback": ""}))
        for kind, told in kinds:
            try:
                if task_id:
                    celery_events.send(app, kind, name, task_id, **told)
                else:
                    celery_events.send_of_worker(app, kind, **told)
            except Exception as exc:
                # By its name: it is declared like all others, above this.
                DECLARED["event_not_sent"](event=kind, task_id=task_id, error=exc)

    def _keep_note(self, values: Values, names: tuple[str, ...]) -> None:
        about: dict[str, object] = {}
        for name, field in zip(names, self.fields_of_note, strict=True):
            value = self._as[name](values[name]) if name in self._as else values[name]
            about[field] = _plain(value)
        of = str(_plain(values[self.counted_by])) if self.counted_by else ""
        try:
            noting.keep(values["app"], self.name, of, about)
        except Exception as exc:
            # What happened has happened: that nobody can ask for it later must not undo it.
            DECLARED["not_noted"](event=self.name, error=exc)


def declared(
    *levels: int,
    choose: Choose | None = None,
    with_traceback: bool = False,
    sender: str = "",
    signal: tuple[str, ...] | None = None,
    celery_event: tuple[str, ...] | None = None,
    celery_kind: str = "",
    note: tuple[str, ...] | None = None,
    counted_by: str = "",
    noted_if: Callable[[Values], bool] = lambda values: True,
    shown: Mapping[str, Callable[[Any], object]] | None = None,
) -> Callable[[Callable[P, None]], Event[P]]:
    """Make an event of a function that has arguments and a docstring, and no body.

    Args:
        levels: those that its lines in the log have.
        choose: which of them, by the fields; the only one without it.
        with_traceback: whether a line has the traceback of its ``error``, where that is none that a
            server or a connection caused.
        sender: the argument that is the sender of its signal.
        signal: the arguments that its signal has besides; None: there is no signal.
        celery_event: the fields that an event of Celery's has; None: there is none.
        celery_kind: its type; without it the event's name with dashes.
        note: the arguments that its note in the ledger has; None: there is none.  Never an argument
            of a task, and no text that may have one, as an exception's may.
        counted_by: the argument by whose few values it is counted apart, such as a cause.
        noted_if: by the fields, whether this one is noted.
        shown: for arguments that a line has in another form: what makes it.  Of a mapping a line
            has every item.
    """

    def declare(function: Callable[P, None]) -> Event[P]:
        event = Event(
            function,
            levels,
            choose=choose,
            with_traceback=with_traceback,
            sender=sender,
            in_signal=signal,
            in_celery_event=celery_event,
            celery_kind=celery_kind,
            in_note=note,
            counted_by=counted_by,
            is_noted=noted_if,
            shown=shown or {},
        )
        DECLARED[event.name] = event
        return event

    return declare


def as_shown(value: object) -> str:
    """Return a value as a line of the log has it: printable, and without passwords of URLs."""
    if isinstance(value, BaseException):
        text = _error_as_shown(value)
    elif isinstance(value, float):
        text = f"{round(value, 3):g}"
    else:
        text = str(_plain(value))
    if not text.isprintable():
        # The name of a task or a queue must not add lines to the log.
        text = text.encode("unicode_escape").decode()
    return _PASSWORD.sub("**", text)


def _error_as_shown(error: BaseException) -> str:
    """Return the text of an error of the package, and the type and text of any other."""
    if isinstance(error, ReliableError):
        text = said(error)
    else:
        try:
            text = repr(error)
        except Exception:
            text = f"{type(error).__name__}({said(error)!r})"
    # Before the text is cut: in half a URL one cannot see where the password ends.
    return _PASSWORD.sub("**", " ".join(text.split()))[:_LONGEST_ERROR]


def _name_of(task: Any) -> object:
    return task.name


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _is_outside(error: BaseException) -> bool:
    """Whether an error is about a server or a connection, so that its text is enough."""
    if isinstance(error, (OSError, ReliableError)):
        return True
    return any(cls.__module__.partition(".")[0] in _OUTSIDE for cls in type(error).__mro__)
