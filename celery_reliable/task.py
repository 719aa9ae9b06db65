"""`ReliableTask`: set as ``base`` of the tasks you have."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery import Task as CeleryTask
from celery.utils import uuid
from celery.utils.imports import symbol_by_name

from celery_reliable import publisher, worker
from celery_reliable.application import reliable_of
from celery_reliable.config import MAX_SECONDS
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.execution import around
from celery_reliable.guarding import guarded
from celery_reliable.identity import check_object_id_spec
from celery_reliable.ledger.caller import FOREVER
from celery_reliable.model import Reply
from celery_reliable.objects import instead_of, is_member, is_unique, unique_publication
from celery_reliable.process import current_worker, running
from celery_reliable.storing import PatientBackend

if TYPE_CHECKING:
    from celery import Task as Base
else:

    def _base() -> type:
        # Celery gives delay_on_commit to Django projects by a task class of its own, which a custom
        # base would lose. This is how Celery itself tells that it is in a Django project.
        if os.environ.get("DJANGO_SETTINGS_MODULE"):
            from celery.contrib.django.task import DjangoTask

            return DjangoTask
        return CeleryTask

    Base = _base()

__all__ = ["ReliableTask"]

_ON_CONFLICT = ("skip", "retry", "fail")
_UNIQUE = ("running", "queued")
#: The ledger counts milliseconds, and takes none of them for no limit.
_LEAST_SECONDS = 0.001
_REQUEST = "celery_reliable.request:ReliableRequest"


def _counts_losses(request: Any) -> bool:
    """Whether a task's Request, a class or where it is, handles losses as ours does."""
    if request == _REQUEST:
        return True
    from celery_reliable.request import ReliableRequest

    try:
        found = symbol_by_name(request)
    except (ImportError, AttributeError, ValueError):
        return False
    return isinstance(found, type) and issubclass(found, ReliableRequest)


class ReliableTask(Base):
    """A task that is never lost, never run twice at once and never runs in circles.

    Set it as the base of a task (``@app.task(base=ReliableTask)``) or of the app.  Its effects are
    at least once: a worker may die between the effect and the settlement.  Compare `attempt` in
    your own database to keep a late attempt from overwriting a newer one.
    """

    abstract = True
    #: How other rooms know a task of ours without importing this one.
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

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check the task's options and put the package's parts into *app*."""
        super().on_bound(app)
        if not cls.name:
            return
        if cls.name.startswith(("celery.", "celery_reliable.")):
            cls._be_plain(app)
            return
        cls._check_options()
        publisher.install(app)
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

    @classmethod
    def _check_options(cls) -> None:
        problems = [
            f"{option}={getattr(cls, option)!r} of task {cls.name} is not {expected}. "
            "Correct it, or leave it out."
            for option, expected in cls._wrong_options()
        ]
        if problems:
            raise ConfigurationError(" ".join(problems), problems=tuple(problems))
        if cls.object_id is not None:
            check_object_id_spec(cls.object_id, cls._signature_of_run(), cls.name)

    @classmethod
    def _wrong_options(cls) -> Iterator[tuple[str, str]]:
        """Yield each option that cannot work, and what it has to be."""
        yield from cls._wrong_options_of_objects()
        # A bool is an int in Python; here it is a mistake.
        losses = cls.max_losses
        if losses is not None and (
            isinstance(losses, bool) or not isinstance(losses, int) or losses < 0
        ):
            yield "max_losses", "a whole number of 0 or more, or None for the setting MAX_LOSSES"
        for option in ("time_to_run_seconds", "once_for_seconds"):
            seconds = getattr(cls, option)
            if seconds is not None and (
                isinstance(seconds, bool)
                or not isinstance(seconds, (int, float))
                or not _LEAST_SECONDS <= seconds <= MAX_SECONDS
            ):
                yield (
                    option,
                    f"a number of seconds from {_LEAST_SECONDS:g} to {MAX_SECONDS:.0f}, or None",
                )
        if not isinstance(cls.dead_letter, bool):
            yield "dead_letter", "True or False"
        if not _counts_losses(cls.Request):
            yield (
                "Request",
                "derived from celery_reliable.request.ReliableRequest, which counts losses",
            )

    @classmethod
    def _wrong_options_of_objects(cls) -> Iterator[tuple[str, str]]:
        for option, known in (("on_conflict", _ON_CONFLICT), ("unique", _UNIQUE)):
            if getattr(cls, option) not in known:
                yield option, f"one of {', '.join(map(repr, known))}"
        if cls.object_id is None:
            for option, default in (("unique", "running"), ("once_for_seconds", None)):
                if getattr(cls, option) != default:
                    yield option, "of use without object_id, which says what the object is"

    @classmethod
    def _signature_of_run(cls) -> inspect.Signature:
        signature = inspect.signature(cls.run)
        names = list(signature.parameters.values())
        # A bound task's function, or a method, has the task itself as its first parameter; callers
        # do not give it.
        if isinstance(inspect.getattr_static(cls, "run"), staticmethod) or not names:
            return signature
        return signature.replace(parameters=names[1:])

    @property
    def object_signature(self) -> inspect.Signature:
        """The parameters that a caller gives."""
        found = self.__dict__.get("_object_signature")
        if found is None:
            found = self.__dict__["_object_signature"] = type(self)._signature_of_run()
        return found

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
        alone: AbstractContextManager[None] = nullcontext()
        if is_unique(self) and not link and not is_member(options):
            task_id = task_id or uuid()
            alone = unique_publication(task_id)
        with alone:
            return super().apply_async(
                args, kwargs, task_id, producer, link, link_error, shadow, **options
            )

    def AsyncResult(self, task_id: str, **kwargs: Any) -> Any:  # noqa: N802 - Celery's name
        """Return the result of *task_id*, as Celery does."""
        result = super().AsyncResult(task_id, **kwargs)
        holder = instead_of(task_id)
        # Dropped, a result also gives up what Celery subscribed to before it published.
        return result if holder == task_id else super().AsyncResult(holder, **kwargs)

    # Celery builds a tracer for each task and keeps it here; every execution in a worker goes
    # through it.
    @property
    def __trace__(self) -> Any:
        return self.__dict__.get("_reliable_trace")

    @__trace__.setter
    def __trace__(self, tracer: Any) -> None:
        if tracer is not None and self.is_reliable:
            tracer = around(self, tracer)
        self.__dict__["_reliable_trace"] = tracer

    @property
    def backend(self) -> Any:
        """The result backend; in a worker one that waits until an outcome can be stored."""
        backend = super().backend
        return backend if current_worker() is None else PatientBackend(self, backend)

    @backend.setter
    def backend(self, value: Any) -> None:
        self._backend = value

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs: 1, 2, 3 … per task id, and the fencing token.

        It grows with every attempt of one id, through losses, retries, replacement and replay.  1
        in eager and direct calls.
        """
        current = running.get()
        if current is not None and current.claim.task_id == self.request.id:
            return current.claim.attempt
        return 1

    @property
    def seconds_left(self) -> float | None:
        """Seconds until this attempt counts as stuck; None without `time_to_run_seconds`.

        By this host's clock: the ledger's own may be a network's delay ahead.
        """
        current = running.get()
        if current is None or current.deadline is None:
            return None
        return max(0.0, current.deadline - time.monotonic())

    def touch(self) -> bool:
        """Show that this attempt is not stuck: its `time_to_run_seconds` start anew.

        Returns False when the attempt is no longer current (it was taken, and somebody else runs
        the task): then stop, as nothing of it will count.  True in eager and direct calls, and
        without a time to run.  Raises LedgerUnavailable when the ledger does not answer.
        """
        current = running.get()
        if current is None or not self.time_to_run_seconds:
            return True
        touched_at = time.monotonic()
        answer = reliable_of(self.app).ledger.touch(
            current.claim, time_to_run_ms=int(self.time_to_run_seconds * 1000)
        )
        if answer.reply is not Reply.TOUCHED:
            return False
        current.deadline = touched_at + self.time_to_run_seconds
        return True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Every task's body is followed by the question whether its attempt still counts: before
        # Celery publishes callbacks and stores a result.
        body = cls.__dict__.get("run")
        if body is not None:
            cls.run = guarded(body)

    def on_replace(self, sig: Any) -> Any:
        """Note that a canvas takes this task's id over, then let Celery replace it."""
        current = running.get()
        if current is not None and current.claim.task_id == self.request.id:
            current.is_replaced = True
            # Before it is published: a quick canvas would be refused its last member.
            reliable_of(self.app).ledger.bequeath(current.claim, patience_seconds=FOREVER)
        return super().on_replace(sig)
