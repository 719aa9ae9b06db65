"""A monitor such as Flower, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from celery.events.state import State


@dataclass
class Monitor:
    """What a monitor hears, and makes of it."""

    state: State = field(default_factory=State)
    events: list[dict[str, Any]] = field(default_factory=list)

    def hear(self, event: dict[str, Any]) -> None:
        # The state takes events to pieces.
        self.events.append(dict(event))
        self.state.event(event)

    def kinds(self, task_id: str) -> list[str]:
        """The kinds of a task's events, in the order in which they came."""
        return [one["type"] for one in self.of(task_id)]

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """A task's events, in the order in which they came."""
        return [one for one in list(self.events) if one.get("uuid") == task_id]

    def event(self, task_id: str, kind: str) -> Mapping[str, Any]:
        return next(one for one in self.of(task_id) if one["type"] == kind)


@contextmanager
def monitoring(app: Any) -> Iterator[Monitor]:
    """A receiver of events, in a thread with a connection of its own."""
    found, is_over, is_ready = Monitor(), threading.Event(), threading.Event()
    connection = app.connection_for_read()
    receiver = app.events.Receiver(connection, handlers={"*": found.hear})

    def consume() -> None:
        with receiver.consumer_context(wakeup=False) as (own, _, _):
            is_ready.set()
            while not is_over.is_set():
                try:
                    own.drain_events(timeout=0.2)
                except TimeoutError:
                    continue

    thread = threading.Thread(target=consume)
    thread.start()
    assert is_ready.wait(10)
    yield found
    is_over.set()
    thread.join(10)
    connection.close()
