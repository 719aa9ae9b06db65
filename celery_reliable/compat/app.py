"""Celery's app: its parts, its tasks, and the tasks that it has not made yet."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from celery import Celery
from kombu.utils.imports import symbol_by_name

from celery_reliable.compat.amqp import send_anew
from celery_reliable.compat.relied import Behaviour, Kept, Name, Part, Used, relies_on

__all__ = [
    "forget_servers",
    "give_part",
    "kept_tracer",
    "make_part_by",
    "tasks_so_far",
]

_APP = "celery.app.base:Celery"
_TRACE = "celery.app.trace"
#: Where a task keeps its tracer.
_KEPT = "_reliable_trace"


@relies_on(Kept(f"{_APP}._tasks"), part=Part.PRODUCER)
def tasks_so_far(app: Celery) -> Mapping[str, Any]:
    """Return the tasks that an app has made so far, without making the others.

    Reads ``Celery._tasks``: ``tasks`` finalizes the app, which may be one that has nothing of ours.
    Checked on Celery 5.6.3 and 5.7.0.  Without it nobody knows which publications are recorded.
    """
    tasks: Mapping[str, Any] = app._tasks
    return tasks


@relies_on(
    Name(f"{_APP}._pool"),
    Kept(f"{_APP}._backend_cache"),
    Kept(f"{_APP}._local"),
    part=Part.PRODUCER,
    is_promise=False,
)
def forget_servers(app: Any) -> None:
    """Let an app connect anew to where its settings say now, after somebody changed them.

    Resets ``Celery._pool``, ``Celery._backend_cache``, and the backend of this thread in
    ``Celery._local``: Celery reads these settings once.  Checked on Celery 5.6.3 and 5.7.0.
    Without it a test publishes to the servers that the settings named before.
    """
    backend = app._backend_cache or app._local.__dict__.get("backend")
    if hasattr(backend, "remove_pending_result"):
        # Its server may be gone when a result is collected, and would be waited for.
        backend.remove_pending_result = lambda result: result
    app._pool = None
    app._backend_cache = None
    app._local.__dict__.pop("backend", None)
    send_anew(app.amqp)


@relies_on(
    Name(f"{_APP}.amqp_cls", used_by=f"{_APP}.amqp"),
    Name(f"{_APP}.control_cls", used_by=f"{_APP}.control"),
    Name("celery._state:_get_active_apps"),
    part=Part.PRODUCER,
)
def make_part_by(name: str, default: str, path: str) -> None:
    """Let every app that has not made a part of its own yet (``amqp``, ``control``) make it by what
    is at *path*, which is given the app; unless somebody has changed the *default* already.

    Sets ``Celery.amqp_cls`` or ``Celery.control_cls``, also of each app in
    ``celery._state._get_active_apps``: nothing tells of an app that is made, and it may publish or
    revoke before it has made its tasks.  What is at *path* gives an app that has nothing of ours
    what Celery gives it.  Checked on Celery 5.6.3 and 5.7.0.  Without it an app that publishes
    before it has made its tasks records none of them.
    """
    from celery._state import _get_active_apps

    for one in (Celery, *_get_active_apps()):
        if getattr(one, f"{name}_cls") == default:
            setattr(one, f"{name}_cls", path)


@relies_on(
    Behaviour(
        "an app keeps its control and its AMQP in its __dict__",
        lambda: all(
            isinstance(inspect.getattr_static(Celery, one), cached_property)
            for one in ("amqp", "control")
        ),
    ),
    part=Part.PRODUCER,
)
def give_part(app: Celery, name: str, path: str) -> None:
    """Put our class at *path* before the class of one app's part.  A part that was made already
    stays the same object.  Where the app makes the part by *path* itself, nothing is imported.

    Looks for it in the app's ``__dict__`` and sets its ``__class__``, as other code holds the parts
    that were made.  Checked on Celery 5.6.3 and 5.7.0.  Without it an app with classes of its own,
    or one that had sent something before it got its first task of ours, tells the ledger nothing.
    """
    if name not in app.__dict__ and getattr(app, f"{name}_cls") == path:
        return
    ours = symbol_by_name(path)
    # Made here, as another thread may just be making it by the class that the app names.
    part = getattr(app, name)
    own = type(part)
    if not issubclass(own, ours):
        part.__class__ = type(own.__name__, (ours, own), {})


@relies_on(
    Name("celery.app.task:Task.__trace__", used_by=f"{_TRACE}:fast_trace_task"),
    Name("celery.app.task:Task.__trace__", used_by=f"{_TRACE}:trace_task"),
    Used(by="celery.worker.consumer.consumer:Consumer.update_strategies", name="__trace__"),
    Used(by="celery.concurrency.prefork:process_initializer", name="__trace__"),
    part=Part.WORKER,
)
def kept_tracer(around: Callable[[Any, Any], Any]) -> Any:
    """Return a property ``__trace__`` for a task class. It puts *around* around each tracer.

    Celery builds a tracer for each task and keeps it there; children, threads, greenlets and the
    solo pool call it for every execution, and eager or direct calls never do.  Signals and hooks
    come inside of it, and a user's task may override the latter.  Checked on Celery 5.6.3 and
    5.7.0.  Without it tasks run with no claim: two at once, and without an end.
    """

    def get(task: Any) -> Any:
        return task.__dict__.get(_KEPT)

    def keep(task: Any, tracer: Any) -> None:
        task.__dict__[_KEPT] = None if tracer is None else around(task, tracer)

    return property(get, keep)
