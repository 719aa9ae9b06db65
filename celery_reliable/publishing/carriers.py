"""Celery's own tasks that carry others: what a call of one carries decides how it is published."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.compat.app import tasks_so_far
from celery_reliable.compat.notes import note, noted
from celery_reliable.message import HEIR
from celery_reliable.options import OPTIONS, TaskOptions, is_reliable

__all__ = ["CARRIERS", "TWINS", "add_twins", "chord_header", "protected"]

#: The names of their reliable twins.  Messages have Celery's own names, as workers without the
#: package run them too; workers with it know a twin's by the stamp.
CARRIERS = {
    f"celery.{name}": f"celery_reliable.{name}"
    for name in ("accumulate", "chord", "chord_unlock", "chunks", "group", "map", "starmap")
}
#: The same from the other side.
TWINS = {twin: name for name, twin in CARRIERS.items()}
_UNLOCK = "celery.chord_unlock"
#: They call a task themselves.  The others publish it.
_CALLING = ("celery.map", "celery.starmap")
#: The arguments that have what is carried, with their positions.
_CARRIED = {
    "celery.chain": {"tasks": 0},
    "celery.chord": {"header": 0, "body": 1},
    _UNLOCK: {"callback": 1},
    "celery.chunks": {"task": 0},
    "celery.group": {"tasks": 0},
    "celery.map": {"task": 0},
    "celery.starmap": {"task": 0},
}

#: The header of the chord that is being published.
chord_header: ContextVar[Any] = ContextVar("chord_header", default=None)


#: What a reliable task has in another way than Celery's own.
_OF_BASE = ("is_reliable", "acks_late", "reject_on_worker_lost", "Request")


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
    if task is None and name == _UNLOCK:
        task = next(_of_each(tasks, chord_header.get()), None)
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
