"""Celery's app: its parts, its tasks, and the tasks that it has not made yet."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from celery import Celery
from celery import Task as CeleryTask
from celery.local import class_property
from kombu.utils.imports import symbol_by_name

from celery_reliable.compat.relied import Behaviour, Kept, Name, Part, Used, relies_on

__all__ = [
    "app_on_trial",
    "app_property",
    "fixups_of",
    "forget_servers",
    "give_part",
    "kept_tracer",
    "make_part_by",
    "may_yet_get",
    "real_app",
    "set_backend",
    "take_messages_by",
    "tasks_so_far",
]

_APP = "celery.app.base:Celery"
_TRACE = "celery.app.trace"
#: Where a task keeps its tracer.
_KEPT = "_reliable_trace"


@relies_on(
    Name(f"{_APP}.close"),
    Used(by=f"{_APP}.close", name="_deregister_app"),
    part=Part.PRODUCER,
    is_promise=False,
)
def app_on_trial() -> Celery:
    """Return an app by which it can be tried what Celery does, and that no shared task gets.

    Calls ``Celery.close``, which takes it from Celery's list of apps: the first reliable task may
    be a shared one, and then Celery goes through that list just now.  Checked on Celery 5.6.3 and
    5.7.0.  Without it such a task cannot be declared once an app is complete.
    """
    app = Celery(set_as_current=False, fixups=())
    app.close()
    return app


@relies_on(Name("celery.local:Proxy._get_current_object"), part=Part.PRODUCER)
def real_app(app: Any) -> Any:
    """Return the app behind the proxy `current_app`. An app is returned unchanged.

    Calls ``Proxy._get_current_object``: nothing else tells the two apart.  Checked on Celery 5.6.3
    and 5.7.0.  Without it what belongs to one app is kept with whichever app is current.
    """
    return app._get_current_object() if hasattr(app, "_get_current_object") else app


@relies_on(Kept(f"{_APP}._tasks"), part=Part.PRODUCER)
def tasks_so_far(app: Celery) -> Mapping[str, Any]:
    """Return the tasks that an app has made so far, without making the others.

    Reads ``Celery._tasks``: ``tasks`` finalizes the app, which may be one that has nothing of ours.
    Checked on Celery 5.6.3 and 5.7.0.  Without it nobody knows which publications are recorded.
    """
    tasks: Mapping[str, Any] = app._tasks
    return tasks


@relies_on(
    Kept(f"{_APP}._pending"),
    Name("celery._state:_on_app_finalizers", used_by="celery._state:connect_on_app_finalize"),
    Used(by="celery.local:Proxy.__init__", name="_Proxy__kwargs"),
    Behaviour(
        "a task waits as a proxy with its options",
        lambda: _options_of(_declared_in_trial()) == {"base": CeleryTask},
    ),
    part=Part.PRODUCER,
)
def may_yet_get(app: Celery, is_meant: Callable[[Any], bool]) -> bool:
    """Whether a task may come of what an app has yet to make, whose base *is_meant*; True where
    that cannot be told.

    Reads ``Celery._pending`` and ``celery._state._on_app_finalizers``, and the options in both: an
    app that is not finalized tells nobody which tasks it is to have, and `send_task` publishes
    without them.  Checked on Celery 5.6.3 and 5.7.0.  Without it such a task is sent with no
    record, or every app of the process is finalized before its time.
    """
    if app.finalized:
        return False
    from celery._state import _on_app_finalizers

    own = app.__dict__.get("Task")
    try:
        is_own_meant = is_meant(own or symbol_by_name(app.task_cls))
    except (ImportError, AttributeError, ValueError):
        return True
    proxies = [_options_of(proxy) for proxy in list(app._pending)]
    for options in (*proxies, *_shared_options(list(_on_app_finalizers))):
        if options is None:
            return True
        base = options.get("base")
        if is_own_meant if base is None else is_meant(base):
            return True
    return False


def _options_of(proxy: Any) -> Mapping[str, Any] | None:
    """Return the options of a task that is not made yet; None if they are not known."""
    try:
        options = object.__getattribute__(proxy, "_Proxy__kwargs")
    except AttributeError:
        return None
    return options if isinstance(options, Mapping) else None


def _shared_options(finalizers: Iterable[Any]) -> Iterator[Mapping[str, Any] | None]:
    """Yield the options of the tasks that every app gets; None if they are not known."""
    for function in finalizers:
        if getattr(function, "__module__", None) == "celery.app.builtins":
            continue
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        cells = dict(zip(names, getattr(function, "__closure__", None) or (), strict=False))
        found = cells.get("options") or cells.get("opts")
        yield found.cell_contents if found is not None else None


def _declared_in_trial() -> Any:
    app = app_on_trial()
    app.task(shared=False, base=CeleryTask)(_declared_in_trial)
    return app._pending[0]


@relies_on(Kept(f"{_APP}._fixups"), part=Part.PRODUCER, is_promise=False)
def fixups_of(app: Celery) -> Iterable[Any]:
    """Return the app's fixups, which adapt it to frameworks such as Django.

    Reads ``Celery._fixups``: ``fixups`` has their names only, and one that found no Django is none.
    Checked on Celery 5.6.3 and 5.7.0.  Without it tasks of a Django project have no
    ``delay_on_commit``.
    """
    fixups: Iterable[Any] = app._fixups
    return fixups


@relies_on(
    Name(f"{_APP}._pool"),
    Kept(f"{_APP}._backend_cache"),
    Kept(f"{_APP}._local"),
    Kept("celery.app.amqp:AMQP._producer_pool"),
    Name("celery.backends.asynchronous:AsyncBackendMixin.remove_pending_result"),
    part=Part.PRODUCER,
    is_promise=False,
)
def forget_servers(app: Any) -> None:
    """Let an app connect anew to where its settings say now, after somebody changed them.

    Resets ``Celery._pool``, ``Celery._backend_cache``, the backend of this thread in
    ``Celery._local``, and ``AMQP._producer_pool``: Celery reads these settings once.  Replaces
    ``remove_pending_result`` of the backend that is dropped, as its server may be gone when a
    result is collected, and would be waited for.  Checked on Celery 5.6.3 and 5.7.0.  Without it a
    test publishes to the servers that the settings named before.
    """
    backend = app._backend_cache or app._local.__dict__.get("backend")
    if hasattr(backend, "remove_pending_result"):
        backend.remove_pending_result = lambda result: result
    app._pool = None
    app._backend_cache = None
    app._local.__dict__.pop("backend", None)
    app.amqp._producer_pool = None


@relies_on(
    Name(f"{_APP}.amqp_cls", used_by=f"{_APP}.amqp"),
    Name(f"{_APP}.control_cls", used_by=f"{_APP}.control"),
    Name(f"{_APP}.amqp_cls", used_by=f"{_APP}.__init__"),
    Name(f"{_APP}.control_cls", used_by=f"{_APP}.__init__"),
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
    Name(f"{_APP}.control_cls", used_by=f"{_APP}.control"),
    Behaviour("an app keeps its control in its __dict__", lambda: _is_cached("control")),
    Behaviour("an app keeps its AMQP in its __dict__", lambda: _is_cached("amqp")),
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


def _is_cached(name: str) -> bool:
    return isinstance(inspect.getattr_static(Celery, name), cached_property)


@relies_on(Name("celery.app.task:Task._get_app"), part=Part.PRODUCER)
def app_property(bind: Any) -> Any:
    """Return the property ``app`` for a task class whose ``bind`` is *bind*.

    Reads ``Task._get_app``: Celery's own property calls the ``bind`` that was there when it was
    made.  Checked on Celery 5.6.3 and 5.7.0.  Without it tasks that are bound by their ``app`` are
    neither checked nor recorded.
    """
    return class_property(CeleryTask.__dict__["_get_app"], bind)


@relies_on(
    Name("celery.app.task:Task._backend", used_by="celery.app.task:Task.backend"),
    part=Part.PRODUCER,
)
def set_backend(task: Any, backend: Any) -> None:
    """Give a task, or a class of tasks, a result backend of its own.

    Sets ``Task._backend``, where Celery's property looks: ours stands before that.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it the option ``backend`` of a task is not heeded.
    """
    task._backend = backend


@relies_on(
    Name("celery.app.task:Task.__trace__"),
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


@relies_on(
    Name("celery.app.task:Task.Strategy", used_by="celery.app.task:Task.start_strategy"),
    part=Part.WORKER,
)
def take_messages_by(task: Any, strategy: str) -> None:
    """Let workers take the messages of a class of tasks by the strategy at this path.

    Sets ``Task.Strategy``: the message decides which of two tasks it is for, and Celery looks for
    its task by its name.  Checked on Celery 5.6.3 and 5.7.0.  Without it Celery's own tasks that
    carry reliable ones run as plain ones, and are lost with their worker.
    """
    task.Strategy = strategy
