"""What a process tells the main process of the tasks of its shift, as they begin and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from celery_reliable.compat.task_events import event_of_end, fields_of_received
from celery_reliable.context import WorkerProcess
from celery_reliable.pool.shift import Left, Shift

__all__ = ["Line", "Telling", "Told", "own_line"]

#: A kind of Celery's events, and its fields.
_Event = tuple[str, dict[str, Any]]


class Told(NamedTuple):
    """What is told at once."""

    #: The token of the shift.
    shift: str
    #: The tag of the message whose task has ended; "" for none.
    ended: str
    #: That whose task begins; None where the main process need not know.
    begun: Left | None
    #: In their order.
    events: list[_Event]


class Line:
    """The way from a process of the pool to the main process."""

    def __init__(self) -> None:
        self._send: Callable[[Any], None] | None = None

    def open(self, send: Callable[[Any], None]) -> None:
        """Tell by *send* from now on."""
        self._send = send

    def tell(self, told: Told) -> None:
        """Tell something.  Waits while the main process hears nothing."""
        if self._send is not None:
            self._send(told)


#: That of this process.
own_line = Line()


class Telling:
    """That of one shift.  It costs one message a task, and nothing where nobody wants to hear.

    The end of a task is told with the begin of the next, or with the end of the shift.
    """

    def __init__(self, shift: Shift, process: WorkerProcess) -> None:
        self._shift = shift
        self._process = process
        self._ended = ""
        self._event: _Event | None = None

    def begins(self, task: Any, found: Left, headers: Mapping[str, Any]) -> None:
        """Tell that a task begins."""
        tells_message, sends_events = self._shift.tells_messages, self._process.sends_events
        if not (tells_message or sends_events or self._ended):
            return
        begun = found if tells_message else None
        events = [self._event] if self._event is not None else []
        if sends_events and task.send_events:
            now = time.time()
            received = fields_of_received(task.name, headers)
            events.append(("task-received", {**received, "timestamp": now}))
            events.append(("task-started", {"uuid": headers["id"], "timestamp": now}))
        self._tell(begun, events)

    def has_ended(self, task: Any, task_id: str, tag: str, outcome: tuple[int, Any, float]) -> None:
        """Note that it has ended."""
        sends_events = self._process.sends_events and task.send_events
        if not (self._shift.tells_messages or sends_events):
            return
        self._ended = tag
        event = event_of_end(outcome) if sends_events else None
        if event is not None:
            self._event = event[0], {**event[1], "uuid": task_id, "timestamp": time.time()}

    def was_fenced(self) -> None:
        """Note that the outcome of what has ended does not count."""
        self._event = None

    def close(self) -> None:
        """Tell what is to be told yet."""
        if self._ended:
            self._tell(None, [self._event] if self._event is not None else [])

    def _tell(self, begun: Left | None, events: list[_Event]) -> None:
        told = Told(self._shift.token, self._ended, begun, events)
        self._ended, self._event = "", None
        own_line.tell(told)
