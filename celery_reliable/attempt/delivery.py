"""One delivery of a task's message, as the process that runs it is given it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery.app.trace import build_tracer
from celery.exceptions import Ignore

from celery_reliable.app import reliable_of
from celery_reliable.compat.consumer import Traced, Tracer
from celery_reliable.message import Stamp, from_request
from celery_reliable.options import task_ref
from celery_reliable.publishing import list_of

__all__ = [
    "DELIVERY",
    "EARLY",
    "MESSAGE",
    "Delivery",
    "NotBegun",
    "raising",
]


class NotBegun(Ignore):
    """A delivery that was no attempt, and is none that ended."""


def raising(error: Exception) -> Callable[..., Any]:
    """Return a body that raises *error*."""

    def body(*args: Any, **kwargs: Any) -> Any:
        raise error

    return body


# What the main process tells the process that runs the task, in properties of the message: unlike
# headers, properties are not copied to retries.

#: The token of the delivery's claim, which its worker or its process makes.
DELIVERY = "reliable_delivery"
#: The claim that was made as the message was filed, in plain values; None when none was.
EARLY = "reliable_claim"
#: The message as it came, as text, where the ledger may not know it.
MESSAGE = "reliable_message"


class Delivery:
    """What Celery gave its tracer to execute."""

    def __init__(
        self, task: Any, tracer: Tracer, uuid: str, args: Any, kwargs: Any, request: dict[str, Any]
    ) -> None:
        self.task = task
        self.id = uuid
        self.args = args
        self.kwargs = kwargs
        self.request = request
        #: Those of the message.
        self.properties: Mapping[str, Any] = request.get("properties") or {}
        #: What the ledger is told of the task.
        self.ref = task_ref(task, uuid, request)
        self.stamp = Stamp.of(request)
        self.reliable = reliable_of(task.app)
        self._tracer = tracer

    @property
    def list_key(self) -> str:
        """The key of the list that the message came from, where the ledger may put it again as it
        is; else empty.
        """
        info = self.request.get("delivery_info") or {}
        return list_of(self.reliable, self.request, info)

    def message(self) -> str:
        """Return the message as the ledger keeps it; made anew where nobody has passed it on."""
        told = self.properties.get(MESSAGE)
        if told:
            return str(told)
        request = {**self.request, "id": self.id, "task": self.task.name}
        serializer = self.task.serializer or "json"
        return from_request(request, self.args, self.kwargs, serializer).to_text()

    def trace(self) -> Traced:
        """Let Celery run the task, and store and publish what follows from that."""
        return self._tracer(self.id, self.args, self.kwargs, self.request)

    def trace_instead(self, body: Callable[..., Any]) -> Traced:
        """Let Celery do the same with *body* in place of the task's, and without the user's hooks.

        Results, callbacks, chains and chords are Celery's own work as always.
        """
        cls = type(self.task)
        instead = dict.fromkeys(("run", "__call__"), staticmethod(body))
        hooks = dict.fromkeys(("before_start", "on_success", "after_return"), lambda *_, **__: None)
        twin = type(cls.__name__, (cls,), {**instead, **hooks, "__trace__": None})()
        # It stores results, and publishes callbacks, chains and chords, as for every task.
        trace: Tracer = build_tracer(self.task.name, twin, self.task.app.loader, app=self.task.app)
        return trace(self.id, self.args, self.kwargs, self.request)
