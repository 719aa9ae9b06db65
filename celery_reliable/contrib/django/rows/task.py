"""`RowTask`: the base of tasks that work on a row."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from celery import Celery
from celery.utils import uuid
from django.apps import apps
from django.db import transaction
from kombu.exceptions import OperationalError

from celery_reliable.context import running
from celery_reliable.contrib.django.rows.attempts import Effect, RowAttempt, current, run
from celery_reliable.contrib.django.rows.model import (
    TaskRow,
    all_rows,
    is_row,
    wait_for,
)
from celery_reliable.exceptions import ConfigurationError, ReliableError, refuse
from celery_reliable.log import logger
from celery_reliable.message import looks_used_once
from celery_reliable.options import resolve_object_id, signature_of_run
from celery_reliable.publishing import is_member
from celery_reliable.task import ReliableTask

__all__ = ["RowTask"]


#: A row would wait for ever for a task that is skipped, and says itself which one it waits for.
_ALLOWED = {
    "if_open": ("replace", "keep"),
    "on_conflict": ("fail", "wait", "retry"),
    "unique": ("running",),
}


class RowTask(ReliableTask):
    """A task that works on one row of a `TaskRow`: its first argument is the row's primary key.

    The row is the publication.  Publishing writes the task's id into it, and sends the message when
    the transaction has committed; what could not be sent then, or was not as the process was
    killed, `look_after_rows` sends.  An attempt takes the row when it begins, and what a late one
    writes is refused.
    """

    abstract = True

    #: The model of the rows, ``"app.Model"`` or the class; derived from `TaskRow`.
    row_model: Any = None
    #: What publishing does while a task of the row is open: ``"replace"`` (the row waits for the
    #: new one, and the one before writes nothing any more) or ``"keep"`` (nothing is published, and
    #: the result is that of the one before).
    if_open: str = "replace"
    #: A row waits for its task, so that one does not end because another has its object.
    on_conflict = "wait"

    _row_signature: inspect.Signature | None = None

    @classmethod
    def bind(cls, app: Celery) -> Celery:
        """Bind the task to *app*, and check its options.

        Raises ConfigurationError for options that cannot work.
        """
        bound: Celery = super().bind(app)
        if cls.name:
            refuse(list(_problems(cls)))
            cls._row_signature = signature_of_run(cls)
        return bound

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
        """Let the row wait for a task, and publish that when the transaction has committed; at once
        where there is none.

        What the broker or the ledger refuses is logged and not raised: the row is there, and
        `look_after_rows` publishes it, without the options of this call.  A call with a ``link``,
        or in a canvas, raises it: within a transaction, as that has committed.  Raises the model's
        DoesNotExist, too, and ConfigurationError for a *task_id* of the caller's: by the id the row
        recognizes its task, so no other task may have had it.
        """
        publish, live = super().apply_async, running.get()
        # An attempt of this very task publishes itself again.
        own_ids = (self.request.id, live and live.claim.task_id)
        is_own = task_id is not None and task_id in own_ids
        if self.app.conf.task_always_eager or is_own:
            return publish(args, kwargs, task_id, producer, link, link_error, shadow, **options)
        row = self._row_of_call(args or (), kwargs or {})
        # Canvases choose ids too, but always new ones.
        if task_id is not None and not (is_member(options) and looks_used_once(task_id)):
            raise ConfigurationError(
                f"task_id={task_id!r} of a call of task {self.name}: a task with a row gets a new "
                "id, which the row has. Leave task_id out. Nothing was published."
            )
        asked = task_id or uuid()
        # One UPDATE, in the user's transaction where there is one.
        waits_for = wait_for(row, self.name, asked, keeps=self.if_open == "keep")
        if waits_for != asked:
            return self.AsyncResult(waits_for)

        def send(producer: Any = None) -> None:
            try:
                publish(args, kwargs, asked, producer, link, link_error, shadow, **options)
            except (ReliableError, OperationalError) as exc:
                # The row does not know what follows the task.
                if link or link_error or is_member(options):
                    raise
                logger.warning("row_not_published name=%s id=%s error=%s", self.name, asked, exc)

        if transaction.get_connection(row.db).in_atomic_block:
            # The producer is somebody's who has given it back by then.
            transaction.on_commit(send, using=row.db)
        else:
            send(producer)
        return self.AsyncResult(asked)

    def publish_missed(self, row: TaskRow) -> bool:
        """Publish the task that a row waits for, and return whether that could be done."""
        try:
            super().apply_async((row.pk,), task_id=row.task_id)
        except (ReliableError, OperationalError) as exc:
            logger.warning("row_not_published name=%s id=%s error=%s", self.name, row.task_id, exc)
            return False
        logger.warning("row_published name=%s id=%s", self.name, row.task_id)
        return True

    @property
    def row(self) -> Any:
        """The row, as it was when the attempt began.

        Its `save` raises RowTaken when a later attempt, or another task, has the row.  Let it pass:
        the task ends without an error then.
        """
        return self._current().row

    def effect(self, name: str = "") -> AbstractContextManager[Effect]:
        """Return a transaction of the row's database that is committed once, whatever is killed.

        Without a name it ends the task: the row is ``succeeded`` by the same commit, and no attempt
        of the task runs its body again.  Do in it what must not happen twice, at the end of the
        body: what follows may not happen.

        With a name it is one of several steps.  The block asks ``effect.is_first``, and what it
        sets as ``effect.result`` is there for later attempts.

        Raises RowTaken when a later attempt, or another task, has the row, and ConfigurationError
        for a block that does not ask.
        """
        return self._current().effect(name)

    def _current(self) -> RowAttempt:
        attempt = current.get()
        if attempt is None or attempt.task.name != self.name:
            raise ConfigurationError(
                f"Task {self.name} has a row only while its body runs, in the same thread."
            )
        return attempt

    def _row_of_call(self, args: Any, kwargs: Any) -> Any:
        """Return the row of a call as a query.  Raises ObjectIdError when the call says none."""
        assert self._row_signature is not None
        first = next(iter(self._row_signature.parameters))
        key = resolve_object_id(first, self._row_signature, self.name, args, kwargs)
        return self.row_of(key)

    def row_of(self, pk: Any) -> Any:
        """Return the row with this key as a query."""
        model = self.row_model
        return all_rows(apps.get_model(model) if isinstance(model, str) else model).filter(pk=pk)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body with the row: around Celery's ``autoretry_for``, as Celery calls it."""
        row, request, outer = self._row_of_call(args, kwargs), self.request, current.get()
        is_own_call = outer is not None and outer.task_id == request.id
        if request.called_directly or is_own_call:
            return run(self, row, None, partial(super().__call__, *args, **kwargs))
        return run(self, row, request.id, partial(self.run, *args, **kwargs))


def _problems(cls: Any) -> Iterator[str]:
    """What cannot work about the options of a task with a row."""
    name = cls.name
    found, said = cls.row_model, ""
    try:
        if isinstance(found, str):
            # A worker makes its tasks when the models are there.
            found = apps.get_model(found) if apps.models_ready else TaskRow
    except (LookupError, ValueError) as exc:
        said = f" ({exc})"
    if not (isinstance(found, type) and is_row(found)):
        yield (
            f"row_model={cls.row_model!r} of task {name} is not a model that is derived from "
            f"TaskRow, and has its columns{said}. Give it as 'app.Model', or the class."
        )
    parameters = list(signature_of_run(cls).parameters.values())
    needed = [
        one.name
        for one in parameters[1:]
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if not parameters or needed:
        yield (
            f"Task {name} takes {', '.join(map(str, parameters)) or 'nothing'}: its first argument "
            "is its row's key, and all others need a default."
        )
    for option, allowed in _ALLOWED.items():
        given = getattr(cls, option)
        if given not in allowed:
            yield (
                f"{option}={given!r} of task {name}, which has a row, is not one of "
                f"{', '.join(map(repr, allowed))}. Correct it (and see if_open)."
            )
