"""`ReliableTask`: set as ``base`` of the tasks you have."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery import Task as CeleryTask
from celery.fixups.django import DjangoFixup
from celery.utils import uuid
from celery.utils.imports import symbol_by_name

from celery_reliable import clock, operations, options, publishing, worker
from celery_reliable.app import reliable_of
from celery_reliable.attempt import around, bequeathing, guarded
from celery_reliable.compat.app import app_property, fixups_of, set_backend
from celery_reliable.compat.tracer import kept_tracer
from celery_reliable.context import current_worker, running
from celery_reliable.exceptions import ConfigurationWarning
from celery_reliable.ledger import answers
from celery_reliable.options import TaskObject, is_reliable, is_unique
from celery_reliable.publishing import fresh_id, instead_of, is_member, unique_publication
from celery_reliable.results import PatientBackend

__all__ = ["ReliableTask"]

_REQUEST = "celery_reliable.request:ReliableRequest"


def _counts_losses(request: Any) -> bool:
    """Whether a task's Request, a class or where it is, handles losses as ours does."""
    if request == _REQUEST:
        return True
    from celery_reliable.worker import ReliableRequest

    try:
        found = symbol_by_name(request)
    except (ImportError, AttributeError, ValueError):
        return False
    return isinstance(found, type) and issubclass(found, ReliableRequest)


class _Shown:
    """A property that an instance may hide: `self.attempt = ...` is the user's own from then on.

    One instance of a task serves all its executions in a process, so nothing of ours reads these.
    """

    def __init__(self, getter: Callable[[Any], Any]) -> None:
        self._getter = getter
        self.__doc__ = getter.__doc__

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    def __get__(self, task: Any, owner: Any = None) -> Any:
        if task is None:
            return self
        own = task.__dict__
        return own[self._name] if self._name in own else self._getter(task)

    def __set__(self, task: Any, value: Any) -> None:
        task.__dict__[self._name] = value

    def __delete__(self, task: Any) -> None:
        # Whoever sees a value, ours or his own, may delete it.
        task.__dict__.pop(self._name, None)


if TYPE_CHECKING:
    shown = property
else:
    shown = _Shown


class ReliableTask(CeleryTask):
    """A task that is never lost, never run twice at once and never runs in circles.

    Set it as the base of a task (``@app.task(base=ReliableTask)``) or of the app.  Its effects are
    at least once: a worker may die between the effect and the settlement.  Compare `attempt` in
    your own database to keep a late attempt from overwriting a newer one.
    """

    abstract = True
    #: How other modules know a task of ours without importing this one.
    is_reliable = True

    acks_late = True
    reject_on_worker_lost = True
    #: Celery's own way spends max_retries on lost processes and publishes from the main process;
    #: losses are ours.
    retry_on_worker_lost = False
    acks_on_failure = True
    acks_on_timeout = True
    Request: Any = _REQUEST

    #: The name of the argument that names the object, or a callable that is given the task's
    #: arguments.
    object_id: str | Callable[..., Any] | None = None
    #: What a task does whose object another task holds: "skip", "retry" (later, no budget is spent)
    #: or "fail".
    on_conflict: str = "skip"
    #: From when on a task holds its object, until it has ended: "running" (from the beginning of
    #: each attempt) or "queued" (from its publication; see `apply_async`).
    unique: str = "running"
    #: Seconds for which the object stays held after a success; None: not at all.
    once_for_seconds: float | None = None
    #: Seconds an attempt may run without a touch before it counts as stuck; None: no limit.
    time_to_run_seconds: float | None = None
    #: Losses after which the task is dead-lettered; None: the setting MAX_LOSSES.
    max_losses: int | None = None
    #: Whether a task that failed for good is kept as a dead letter.
    dead_letter: bool = True

    #: How its calls say which object they are about; known when the task is bound.
    _reliable_object: TaskObject | None = None

    @classmethod
    def bind(cls, app: Celery) -> Celery:
        """Bind the task to *app*, check its options, and put the package's parts into *app*.

        Not in `on_bound`: that is the users', who need not call ours.
        """
        bound: Celery = super().bind(app)
        if cls.name:
            cls._be_of_django(app)
            cls._be_reliable(app)
        return bound

    app = app_property(bind)

    @classmethod
    def _be_of_django(cls, app: Celery) -> None:
        """Give the task what Celery gives those of a Django project, by a task class of its own."""
        if any(isinstance(fixup, DjangoFixup) for fixup in fixups_of(app)):
            from celery.contrib.django.task import DjangoTask

            if not issubclass(cls, DjangoTask):
                place = next(i for i, b in enumerate(cls.__bases__) if issubclass(b, ReliableTask))
                bases = cls.__bases__
                cls.__bases__ = (*bases[: place + 1], DjangoTask, *bases[place + 1 :])

    @classmethod
    def _be_reliable(cls, app: Celery) -> None:
        if cls.name.startswith(("celery.", "celery_reliable.")):
            cls._be_plain(app)
            return
        problems = options.problems(cls, ReliableTask)
        if not _counts_losses(cls.Request):
            problems.append(
                f"Request={cls.Request!r} of task {cls.name} is not derived from "
                "celery_reliable.request.ReliableRequest, which counts losses. Correct it, or "
                "leave it out."
            )
        options.refuse(problems)
        cls._reliable_object = options.object_of(cls)
        for doubt in options.doubts(cls, ReliableTask):
            warnings.warn(doubt, ConfigurationWarning, stacklevel=2)
        publishing.install(app)
        operations.install_control(app)
        worker.install(app)

    @classmethod
    def _be_plain(cls, app: Celery) -> None:
        """Give a task of Celery's own, which an app-wide base made ours, Celery's ways back.

        Acknowledged late and requeued without a count, a poisonous `celery.map` would never end.
        """
        cls.is_reliable = False
        cls.acks_late = bool(app.conf.task_acks_late)
        cls.reject_on_worker_lost = bool(app.conf.task_reject_on_worker_lost)
        cls.Request = CeleryTask.Request

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

        With ``unique="queued"``, while another task has the object, nothing is published, and the
        result that is returned is that task's.  Not so for members of a canvas, calls with a
        ``link``, and `app.send_task`: these are published, and `on_conflict` says what becomes of
        them when they come to run.  Raises LedgerUnavailable and LedgerRefused when it cannot be
        told who has the object.
        """
        is_chosen = task_id is not None and not is_member(options)
        task_id = task_id or uuid()
        alone: AbstractContextManager[None] = nullcontext()
        if is_unique(self) and not link and not is_member(options):
            alone = unique_publication(task_id)
        token = fresh_id.set("" if is_chosen else task_id)
        try:
            with alone:
                return super().apply_async(
                    args, kwargs, task_id, producer, link, link_error, shadow, **options
                )
        finally:
            fresh_id.reset(token)

    def AsyncResult(self, task_id: str, **kwargs: Any) -> Any:  # noqa: N802 - Celery's name
        """Return the result of *task_id*, as Celery does."""
        result = super().AsyncResult(task_id, **kwargs)
        holder = instead_of(task_id)
        # Dropped, a result also gives up what Celery subscribed to before it published.
        return result if holder == task_id else super().AsyncResult(holder, **kwargs)

    # Every execution in a worker goes through it.
    __trace__ = kept_tracer(lambda task, own: around(task, own) if is_reliable(task) else own)

    @property
    def backend(self) -> Any:
        """The result backend; in a worker one that waits until an outcome can be stored."""
        backend = super().backend
        return backend if current_worker() is None else PatientBackend(self, backend)

    @backend.setter
    def backend(self, value: Any) -> None:
        set_backend(self, value)

    @shown
    def attempt(self) -> int:
        """The number of the attempt that runs: 1, 2, 3 … per task id, and the fencing token.

        It grows with every attempt of one id, through losses, retries, replacement and replay.  1
        in eager and direct calls.  What you assign to it hides it, in this process.
        """
        current = running.get()
        if current is not None and current.claim.task_id == self.request.id:
            return current.claim.attempt
        return 1

    @shown
    def seconds_left(self) -> float | None:
        """Seconds until this attempt counts as stuck; None without `time_to_run_seconds`.

        By this host's clock: the ledger's own may be a network's delay ahead.
        """
        current = running.get()
        if current is None or current.deadline is None:
            return None
        return max(0.0, current.deadline - clock.now())

    def touch(self) -> bool:
        """Show that this attempt is not stuck: its `time_to_run_seconds` start anew.

        Returns False when the attempt is no longer current (it was taken, and somebody else runs
        the task): then stop, as nothing of it will count.  True in eager and direct calls, and
        without a time to run.  Raises LedgerUnavailable when the ledger does not answer.
        """
        current = running.get()
        seconds = type(self).time_to_run_seconds
        if current is None or not seconds:
            return True
        touched_at = clock.now()
        answer = reliable_of(self.app).ledger.touch(
            current.claim, time_to_run_ms=int(seconds * 1000)
        )
        if not isinstance(answer, answers.Touched):
            return False
        current.deadline = touched_at + seconds
        return True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Every task's body is followed by the question whether its attempt still counts: before
        # Celery publishes callbacks and stores a result.
        body = cls.__dict__.get("run")
        if body is not None:
            cls.run = guarded(body)
        # Also one that does not call that of its base, wherever it comes from.
        cls.on_replace = bequeathing(cls.on_replace)
        # The option of this name, where Celery's property looks for it: ours stands before that.
        if "backend" in cls.__dict__ and not hasattr(cls.__dict__["backend"], "__get__"):
            set_backend(cls, cls.__dict__["backend"])
            del cls.backend
