"""Runs: a task is published once for each of several workers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from celery.backends.base import DisabledBackend
from celery.result import GroupResult
from celery.utils import uuid

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ConfigurationError, LedgerUnavailable
from celery_reliable.message import NAMED, NamedWorkers
from celery_reliable.model import TaskRef
from celery_reliable.options import NAMING, patterns_of
from celery_reliable.publishing.errors import NotPublished, not_sent
from celery_reliable.publishing.placement import refuse_unreachable

__all__ = ["run_on"]


def run_on(
    task: Any, where: int | str, args: Any, kwargs: Any, options: Mapping[str, Any]
) -> GroupResult:
    """Publish *task* for several workers, as `ReliableTask.run_on` has it."""
    reliable = reliable_of(task.app)
    if reliable.is_unprotected or task.app.conf.task_always_eager:
        raise ConfigurationError(
            f"run_on of task {task.name} needs a ledger, which knows the workers: none is set, or "
            "task_always_eager is on."
        )
    if getattr(type(task), "object_id", None) is not None:
        raise ConfigurationError(
            f"run_on of task {task.name}: it has an object_id, and each member of the run would "
            "be about the same object."
        )
    if "task_id" in options:
        raise ConfigurationError(
            f"run_on of task {task.name}: task_id is one task's, and each member has its own. The "
            "id of the run is that of the result that run_on returns."
        )
    given = dict(options)
    named = {name: given.pop(name, None) or getattr(type(task), name) for name in NAMING}
    only, prefer = patterns_of(named["only_workers"]), patterns_of(named["prefer_workers"])
    if isinstance(where, str) and where != "all":
        only = (where,)
    run = uuid()
    meant, due_in_ms = NamedWorkers(only, prefer, run=run), reliable.config.queued_ms
    # All of this comes first: a caller to whom it raises has published nothing.
    try:
        members = [uuid() for _ in range(_count(task, where, meant))]
        reliable.ledger.runs.begin(run, members, name=task.name, only=only, due_in_ms=due_in_ms)
    except LedgerUnavailable as exc:
        raise not_sent(TaskRef(run, task.name), exc) from exc
    if not isinstance(task.app.backend, DisabledBackend):
        # The results of all are found by the run's id, where the result backend keeps groups.
        with suppress(NotImplementedError):
            task.app.GroupResult(run, [task.AsyncResult(member) for member in members]).save()
    headers = {**(given.pop("headers", None) or {}), NAMED: meant.as_header()}
    given.setdefault("group_id", run)
    found = [
        task.apply_async(args, kwargs, task_id=member, headers=dict(headers), **given)
        for member in members
    ]
    return task.app.GroupResult(run, found)


def _count(task: Any, where: int | str, meant: NamedWorkers) -> int:
    if isinstance(where, int) and not isinstance(where, bool) and where > 0:
        refuse_unreachable(reliable_of(task.app), task, f"run_on({where})")
        return where
    if not isinstance(where, str) or not where:
        raise ConfigurationError(
            f"run_on({where!r}) of task {task.name}: say how many workers, or 'all', or a pattern "
            "of their names."
        )
    living = reliable_of(task.app).living.read()
    count = len({one.nodename for one in living if meant.means(one.nodename)})
    if not count:
        raise NotPublished(
            f"No worker is alive that run_on({where!r}) of task {task.name} means and that has a "
            "queue of its own (worker_direct). Nothing was published.",
            task_id=meant.run,
        )
    return count
