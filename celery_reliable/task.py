"""`ReliableTask`: the base class of reliable tasks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from celery import Celery
from celery import Task as CeleryTask
from celery.local import class_property
from celery.result import GroupResult
from celery.utils import uuid
from celery.utils.imports import symbol_by_name

from celery_reliable import attempt as attempts
from celery_reliable import clock, options, publishing
from celery_reliable.app import reliable_of
from celery_reliable.attempt import bequeathing, guarded
from celery_reliable.compat.app import give_part, kept_tracer, tasks_so_far
from celery_reliable.context import current_worker, running
from celery_reliable.exceptions import ConfigurationWarning, refuse
from celery_reliable.message import id_as_text
from celery_reliable.options import (
    TaskObject,
    TaskOptions,
    check_call,
    is_reliable,
    is_unique,
)
from celery_reliable.publishing import (
    TWINS,
    Call,
    add_twins,
    calling,
    instead_of,
    is_member,
    run_on,
)

__all__ = ["ReliableTask"]

T = TypeVar("T")

_REQUEST = "celery_reliable.request:ReliableRequest"
#: The control that tells the ledger what is revoked.
CONTROL = "celery_reliable.recovery:RecordingControl"


def _add_task_class(cls: Any, app: Celery) -> None:
    """Make a task an instance of its app's ``Task`` where that is Celery's own, for projects that
    ask ``isinstance(task, app.Task)``.  In a Django project it has ``delay_on_commit``, which a
    task gets also where the app's ``Task`` is somebody else's.

    Somebody else's is left out: it is meant for tasks that name no base.
    """
    added: Any = app.Task
    if not all(one.__module__.startswith("celery.") for one in added.__mro__[:-1]):
        # As Celery's own fixup decides it.
        is_django = "celery.fixups.django:fixup" in app.fixups
        if not (is_django and os.environ.get("DJANGO_SETTINGS_MODULE") and find_spec("django")):
            return
        from celery.contrib.django.task import DjangoTask

        added = DjangoTask
    with reliable_of(app).mutex:
        if not issubclass(cls, added):
            bases = cls.__bases__
            # Behind ours, so that our options and methods come first.
            place = next(i for i, base in enumerate(bases) if issubclass(base, ReliableTask)) + 1
            cls.__bases__ = (*bases[:place], added, *bases[place:])


def _make_reliable(cls: Any, app: Celery) -> None:
    """Check the options of a task's class, and put the package's parts into its app.

    Raises ConfigurationError for options that cannot work.
    """
    problems = options.problems(cls, ReliableTask)
    if not _counts_losses(cls.Request):
        problems.append(
            f"Request={cls.Request!r} of task {cls.name} is not derived from "
            "celery_reliable.request.ReliableRequest, which counts losses. Correct it, or "
            "leave it out."
        )
    refuse(problems)
    cls._reliable_object = options.object_of(cls)
    for doubt in options.doubts(cls, ReliableTask):
        warnings.warn(doubt, ConfigurationWarning, stacklevel=2)
    # No thread goes on before all of it is there, or it would publish without a record.
    with reliable_of(app).mutex:
        publishing.install(app)
        give_part(app, "control", CONTROL)
        # By their paths, as only workers load them.
        app.steps["worker"].add("celery_reliable.worker:WorkerStep")
        app.steps["consumer"].add("celery_reliable.worker:ConsumerStep")
    add_twins(app, ReliableTask)


def _make_plain(cls: Any, app: Celery) -> None:
    """Give a task of Celery's own back Celery's ways, where the app's base made it a reliable one.

    It has no record and no count of losses.  With late acknowledgement, a `celery.map` that kills
    its process would be requeued without end.
    """
    cls.is_reliable = False
    cls.acks_late = bool(app.conf.task_acks_late)
    cls.reject_on_worker_lost = bool(app.conf.task_reject_on_worker_lost)
    cls.Request = CeleryTask.Request


def _counts_losses(request: Any) -> bool:
    """Whether the Request of a task, a class or its import path, is derived from ours."""
    if request == _REQUEST:
        return True
    from celery_reliable.worker import ReliableRequest

    # A TypeError where it is no class.
    with suppress(ImportError, AttributeError, TypeError, ValueError):
        return issubclass(symbol_by_name(request), ReliableRequest)
    return False


class shown(Generic[T]):  # noqa: N801 - used as `property` is
    """A property that a user may assign to: after `self.attempt = ...` the instance has that value.

    All executions in a process share one instance of a task, so the package reads none of these.
    """

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __get__(self, task: Any, owner: Any = None) -> T:
        return self if task is None else self._read(task)  # type: ignore[return-value]


class ReliableTask(TaskOptions, CeleryTask):
    """A task that is never lost, never run twice at once and never runs in circles.

    Set it as the base of a task (``@app.task(base=ReliableTask)``) or of the app.  A task's effects
    may happen more than once, as a worker may die after an effect and before its attempt is
    settled.  Compare `attempt` in your own database to keep a late attempt from overwriting what a
    newer one wrote.
    """

    abstract = True
    #: Tells other modules that a task is reliable; they cannot import this module.
    is_reliable = True

    acks_late = True
    reject_on_worker_lost = True
    #: Off, as the ledger counts losses.  Celery's own way spends max_retries on them, and publishes
    #: from the worker's main process.
    retry_on_worker_lost = False
    acks_on_failure = True
    acks_on_timeout = True
    Request: Any = _REQUEST

    #: The result backend that was given to this task; None: the app's.
    _own_backend: Any = None
    #: `object_id` as it was checked when the task was bound.
    _reliable_object: TaskObject | None = None
    #: The class that was bound to its end.  Classes derived from it inherit this, and are not.
    _bound_class: Any = None
    #: The app that `__new__` bound the class to.
    _bound_early: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the task, and bind it first if its class names the app, as decorated tasks do.

        Celery registers a decorated task and then binds it.  In between another thread could find
        the task and publish it without a record.
        """
        app = cls.__dict__.get("app")
        if cls.name and isinstance(app, Celery):
            cls.bind(app)
            cls._bound_early = app
        return super().__new__(cls)

    @classmethod
    def bind(cls, app: Celery) -> Celery:
        """Bind the task to *app*, check its options, and put the package's parts into *app*.

        Raises ConfigurationError for options that cannot work.  This is not done in `on_bound`, as
        a task may override that without calling super().
        """
        if cls.__dict__.get("_bound_early") is app:
            cls._bound_early = None
            return app
        bound: Celery = super().bind(app)
        if cls.name is None:
            # `register_task` gives a name to the task alone, and then registers it.
            names = [one.name for one in tasks_so_far(app).values() if type(one) is cls]
            cls.name = names[0] if names else None
        if cls.name:
            _add_task_class(cls, app)
            is_own = cls.name.startswith(("celery.", "celery_reliable."))
            if is_own and cls.name not in TWINS:
                _make_plain(cls, app)
            else:
                _make_reliable(cls, app)
            cls._bound_class = cls
        return bound

    # Celery's own property calls the `bind` that was there when it was made.
    app = class_property(lambda cls: vars(CeleryTask)["app"].__get__(None, cls), bind)

    if TYPE_CHECKING:

        def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
            """In a Django project: `delay` when the transaction has been committed."""

        def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
            """In a Django project: `apply_async` when the transaction has been committed."""

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> Any:
        """Publish the task, as Celery does.

        `time_to_run_seconds`, `max_losses`, `only_workers`, `prefer_workers`, and of a task with
        places `at_most` may be given here, too (and to `set`, or among the options of an entry of
        the beat schedule): this call's own, in place of the task's.  None: the task's.
        Raises ConfigurationError for values that cannot work.

        With a *task_id* of the caller's, `if_exists` says what becomes of the call when there is a
        task of that id already: ``"keep"`` (nothing is published; the result is that task's, also
        if it is a dead letter), ``"replay_dead"`` (likewise, but a dead letter is run again, with
        the arguments of this call) or ``"refuse"`` (TaskExists is raised).  Without it, a task that
        lives is kept, and the id of a dead letter is published anew.  A member of a canvas is
        published all the same.  While a task of another name lives or is a dead letter, its id is
        no other's: TaskExists is raised in any case.

        With ``unique="queued"``, nothing is published while another task has the object, and the
        result that is returned is that task's.  Members of a canvas, calls with a ``link`` and
        `app.send_task` are published all the same; `on_conflict` says what they do when they come
        to run.

        Raises NotPublished or PublishUnknown, both kombu's OperationalError too, when the task was
        not published or may not have been, and LedgerRefused when the ledger refuses to record it.
        """
        if self._bound_class is not type(self):
            # `register_task` registers a task and then binds it, maybe in another thread just now.
            self.bind(self.app)
        if options:
            if is_member(options):
                # Somebody waits for the very id of a canvas's member.
                options.pop("if_exists", None)
            check_call(self, options, has_id=task_id is not None)
        is_chosen = task_id is not None and not is_member(options)
        task_id = id_as_text(task_id) if task_id else uuid()
        is_alone = is_unique(self) and not link and not is_member(options)
        with calling(Call(task_id, is_fresh=not is_chosen, is_unique=is_alone)):
            return super().apply_async(
                args, kwargs, task_id, producer, link, link_error, shadow, **options
            )

    def run_on(
        self,
        where: int | str,
        args: Any = None,
        kwargs: Any = None,
        **options: Any,
    ) -> GroupResult:
        """Publish the task once for each of several workers; each of them runs it to its end once.

        *where*: how many workers, or ``"all"`` that are alive now, or a pattern of names: all of
        those that are alive now.  Workers that start later are not among them, but take the place
        of one that is lost.  *options*: as `apply_async`; with ``only_workers`` a number of those.

        A member that is lost is run by a worker that no other member has or had; while there is
        none, it waits.  One that fails for good has failed, and the others go on.  Workers of one
        name count as one, and only those can be chosen that have a queue of their own
        (``worker_direct``).

        Returns the result of all, whose id `celery reliable run` takes; it is saved where the
        result backend keeps groups.  Raises what `apply_async` raises (then those that were
        published before run), NotPublished when no worker is meant, and ConfigurationError for
        what cannot work: an `object_id`, no ledger, or workers without queues of their own.
        """
        return run_on(self, where, args, kwargs, options)

    def AsyncResult(self, task_id: str, **kwargs: Any) -> Any:  # noqa: N802 - Celery's name
        """Return the result of *task_id*, as Celery does; for a call that was answered with another
        task's id, the result of that task.
        """
        task_id = id_as_text(task_id)
        result = super().AsyncResult(task_id, **kwargs)
        holder = instead_of(task_id)
        # The first result is dropped then, and with it what Celery subscribed to for it.
        return result if holder == task_id else super().AsyncResult(holder, **kwargs)

    # Celery calls this for every execution in a worker.
    __trace__ = kept_tracer(
        lambda task, own: attempts.around(task, own) if is_reliable(task) else own
    )

    @property
    def backend(self) -> Any:
        """The result backend; in a worker one that waits until an outcome can be stored."""
        own = self._own_backend
        backend = super().backend if own is None else own
        if current_worker() is None:
            return backend
        # A process that only publishes stores no outcome, and does not load this.
        from celery_reliable.results import PatientBackend

        return PatientBackend(self, backend)

    @backend.setter
    def backend(self, value: Any) -> None:
        self._own_backend = value

    @shown
    def attempt(self) -> int:
        """The number of the attempt that runs, which is its fencing token: 1, 2, 3 … per task id.

        It grows with every attempt of one id, through losses, retries, replacement and replay.  It
        is 1 in eager and direct calls.  A value that you assign hides it, in this process.
        """
        current = running.get()
        if current is not None and current.claim.task_id == self.request.id:
            return current.claim.attempt
        return 1

    @shown
    def seconds_left(self) -> float | None:
        """Seconds until this attempt counts as stuck; None without `time_to_run_seconds`.

        Measured by this host's clock.  The ledger's own deadline may differ by as long as a command
        to it, or the answer, was under way.
        """
        current = running.get()
        if current is None or current.deadline is None:
            return None
        return max(0.0, current.deadline - clock.now())

    def touch(self) -> bool:
        """Start this attempt's `time_to_run_seconds` anew, to show that it is not stuck.

        Returns False when the attempt is no longer current, as somebody else runs the task or will:
        stop then, as nothing that it does will count.  Returns True in eager and direct calls, and
        without `time_to_run_seconds`.  Raises LedgerUnavailable when the ledger does not answer,
        and LedgerRefused when it refuses.
        """
        current = running.get()
        return current is None or attempts.is_touched(self.app, current)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # After the body the ledger is asked whether the attempt still counts, before Celery
        # publishes callbacks and stores a result.
        body = cls.__dict__.get("run")
        if body is not None:
            cls.run = guarded(body)
        # Wrapped here, as an on_replace of the user's need not call super().
        cls.on_replace = bequeathing(cls.on_replace)
        # A `backend` given as an option would hide the property above.
        if "backend" in cls.__dict__ and not hasattr(cls.__dict__["backend"], "__get__"):
            cls._own_backend = cls.__dict__["backend"]
            del cls.backend
