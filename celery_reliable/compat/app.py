"""Celery's app: its parts, its tasks and the tasks that it has not made yet; the one point through
which it publishes every task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu.utils.imports import symbol_by_name

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = [
    "OpenAMQP",
    "forget_servers",
    "give_part",
    "kept_tracer",
    "make_part_by",
    "send_anew",
    "tasks_so_far",
]

_APP = "celery.app.base:Celery"
_TRACE = "celery.app.trace"
#: Where a task keeps its tracer.
_KEPT = "_reliable_trace"

_AMQP = "celery.app.amqp:AMQP"


@relies_on(Used(_APP, "_tasks"), part=Part.PRODUCER)
def tasks_so_far(app: Celery) -> Mapping[str, Any]:
    """Return the tasks that an app has made so far, without making the others.

    Reads ``Celery._tasks``: ``tasks`` finalizes the app, which may be one that has nothing of ours.
    Checked on Celery 5.6.3 and 5.7.0.  Without it nobody knows which publications are recorded.
    """
    tasks: Mapping[str, Any] = app._tasks
    return tasks


@relies_on(
    Name(f"{_APP}._pool"),
    Used(_APP, "_backend_cache"),
    Used(_APP, "_local"),
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
    Name(f"{_APP}.amqp_cls", used_by=f"{_APP}.amqp"),
    Name(f"{_APP}.control_cls", used_by=f"{_APP}.control"),
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


@relies_on(
    Name(f"{_AMQP}._create_task_sender", used_by=f"{_AMQP}.send_task_message"),
    Name(f"{_AMQP}._producer_pool", used_by=f"{_AMQP}.producer_pool"),
    Name(f"{_AMQP}.send_task_message", used_by="celery.app.base:Celery.send_task"),
    part=Part.PRODUCER,
)
class OpenAMQP(AMQP):
    """Celery's AMQP, of which a subclass says how tasks are sent (`sender_around`, given Celery's
    own function), and by which producers (`new_producers`; None for those that Celery makes).

    Overrides ``AMQP._create_task_sender``, and sets ``AMQP._producer_pool``: signals tell of a
    publication when its producer is chosen, and cannot replace it.  Checked on Celery 5.6.3 and
    5.7.0.  Without it tasks are sent that the ledger knows nothing of.
    """

    _producer_pool: Any

    def _create_task_sender(self) -> Callable[..., Any]:
        sender: Callable[..., Any] = self.sender_around(super()._create_task_sender())
        return sender

    @property
    def producer_pool(self) -> Any:
        """The producers of the app."""
        if self._producer_pool is None:
            self._producer_pool = self.new_producers()
        return super().producer_pool

    publisher_pool = producer_pool


@relies_on(
    Name(f"{_AMQP}._producer_pool", used_by=f"{_AMQP}.producer_pool"),
    part=Part.PRODUCER,
)
def send_anew(amqp: Any) -> None:
    """Let an app forget its producers and its sender, so that it makes them anew when needed.

    Clears ``AMQP._producer_pool`` and the ``send_task_message`` that is kept: both are made once.
    Checked on Celery 5.6.3 and 5.7.0.  Without it an app that had sent something before it got its
    first task of ours goes on without records.
    """
    amqp._producer_pool = None
    # By the property, whose lock waits for a thread that is just making the former sender.
    with suppress(AttributeError):
        # A functools.cached_property of the project's own class has made none yet.
        del amqp.send_task_message
