"""Where a task goes that only some workers may run, or that some should: the choice of a worker;
and runs, which publish a task once for each of several workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from celery.backends.base import DisabledBackend
from celery.result import GroupResult
from celery.utils import uuid

from celery_reliable.app import Reliable, reliable_of
from celery_reliable.exceptions import ConfigurationError, LedgerUnavailable
from celery_reliable.ledger import LivingWorker, Runs
from celery_reliable.message import NAMED, Envelope, NamedWorkers, address_of
from celery_reliable.model import TaskRef
from celery_reliable.options import NAMING, in_force, names_workers, patterns_of
from celery_reliable.publishing.sending import NotPublished, not_sent

__all__ = ["at_home", "named_anew", "place", "placed", "run_on"]


@dataclass(frozen=True)
class Placement:
    """Where a message goes, and what its header says of it."""

    exchange: str
    routing_key: str
    named: NamedWorkers

    def readdressed(self, envelope: Envelope) -> Envelope:
        """Return a stored message as it is sent there."""
        return replace(
            envelope,
            headers={**envelope.headers, NAMED: self.named.as_header()},
            exchange=self.exchange,
            routing_key=self.routing_key,
        )


def _chosen(named: NamedWorkers, living: Sequence[LivingWorker]) -> Placement | None:
    """Return where a task goes just now; None: nowhere, as no worker that may run it lives.

    To the own queue of a worker: one that is preferred to others, and has less to do than those
    that are preferred as much.  What any worker may run goes to its usual queue when no worker that
    is preferred lives.
    """
    may = [one for one in living if named.means(one.nodename)]
    if not named.only:
        may = [one for one in may if named.rank(one.nodename) < len(named.prefer)]
    worker = min(may, key=lambda one: (named.rank(one.nodename), one.load), default=None)
    if worker is not None:
        worker.held += 1
        return Placement("", worker.queue, named)
    return None if named.only else Placement(*named.home, named)


def _chosen_for_member(
    runs: Runs,
    task_id: str,
    named: NamedWorkers,
    living: Sequence[LivingWorker],
    *,
    patience_seconds: float | None = None,
) -> Placement | None:
    """Return where a member of a run goes: to a worker that no other member has.

    The one that it has is kept while it lives.  Raises what the ledger raises.
    """
    may = [one for one in living if named.means(one.nodename)]
    may.sort(key=lambda one: (one.nodename != named.pin, named.rank(one.nodename), one.load))
    names = list(dict.fromkeys(one.nodename for one in may))
    found = runs.assign(named.run, task_id, names, patience_seconds=patience_seconds)
    if found is None:
        # The run is forgotten: a dead letter was replayed long after it.
        return _chosen(replace(named, run="", pin=""), living)
    for worker in may:
        if worker.nodename == found:
            worker.held += 1
            return Placement("", worker.queue, replace(named, pin=found))
    return None


#: A worker is chosen among those of the last second.  Before a task is let wait for one, newer ones
#: are looked for: nobody else would see that it waits before the next pass.
_LOOKS_SECONDS = (1.0, 0.1)


def placed(
    runs: Runs,
    task_id: str,
    named: NamedWorkers,
    living_within: Callable[[float], Sequence[LivingWorker]],
    *,
    patience_seconds: float | None = None,
) -> Placement | None:
    """Return where a task goes just now; None where it has to wait for a worker.

    *living_within* returns the workers that lived within so many seconds.  Raises what that raises,
    and what the ledger raises.
    """
    for seconds in _LOOKS_SECONDS:
        living = living_within(seconds)
        if named.run:
            found = _chosen_for_member(
                runs, task_id, named, living, patience_seconds=patience_seconds
            )
        else:
            found = _chosen(named, living)
        if found is not None:
            return found
    return None


def at_home(envelope: Envelope) -> Envelope | None:
    """Return a message as it goes to the queue that it would have if it named no worker; None of
    one that names none, of one that is there, and where that queue is not known.

    A member of a run has no worker then: the one that takes it has another chosen.
    """
    named = NamedWorkers.of(envelope.headers)
    if named is None or not any(named.home):
        return None
    if (envelope.exchange, envelope.routing_key) == named.home and not named.pin:
        return None
    return Placement(*named.home, replace(named, pin="")).readdressed(envelope)


def named_anew(options: MutableMapping[str, Any]) -> None:
    """Forget which workers the message before named, where *options* of a retry name others."""
    headers = options.get("headers")
    if headers and NAMED in headers and NAMING.keys() & options.keys():
        options["headers"] = {name: one for name, one in headers.items() if name != NAMED}


def place(
    reliable: Reliable,
    task: Any,
    ref: TaskRef,
    headers: dict[str, Any],
    options: dict[str, Any],
    *,
    patience_seconds: float,
) -> bool:
    """Let a task that only some workers may run, or that some should, go to one of those.

    Says so in its *headers*, and where it goes in *options*.  False when none is alive, and it has
    to wait.  Raises NotPublished and LedgerRefused when the ledger does not say which of them live.
    """
    # A retry has the header of the message before it, in which an operator may have named others.
    named = NamedWorkers.of(headers)
    only = patterns_of(in_force(task, "only_workers", headers))
    prefer = patterns_of(in_force(task, "prefer_workers", headers))
    if named is None and not (only or prefer):
        return True
    named = named or NamedWorkers(only, prefer)
    if not any(named.home):
        named = replace(named, home=address_of(options))

    def living_within(seconds: float) -> list[LivingWorker]:
        return reliable.living.now(within=seconds, patience_seconds=patience_seconds)

    try:
        found = placed(
            reliable.ledger.runs,
            ref.id,
            named,
            living_within,
            patience_seconds=patience_seconds,
        )
        if found is None and NAMED not in headers and not living_within(1.0):
            _refuse_unreachable(reliable, task, "A call", patience_seconds=patience_seconds)
    except LedgerUnavailable as exc:
        raise not_sent(ref, exc) from exc
    headers[NAMED] = (named if found is None else found.named).as_header()
    if found is None:
        return False
    if (found.exchange, found.routing_key) != address_of(options):
        options.update(exchange=found.exchange, routing_key=found.routing_key, declare=[])
    return True


def _refuse_unreachable(
    reliable: Reliable, task: Any, what: str, *, patience_seconds: float | None = None
) -> None:
    """Raise ConfigurationError where no worker has, has had, or will have a queue of its own: a
    call that names workers would wait for ever.
    """
    if task.app.conf.worker_direct or names_workers(task.app):
        return
    if not reliable.ledger.named.queues(patience_seconds=patience_seconds):
        raise ConfigurationError(
            f"{what} of task {task.name} names workers, and no worker has a queue of its own, by "
            "which it could be reached. Set worker_direct = True in Celery's settings, and start "
            "the workers again. Nothing was published."
        )


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
        _refuse_unreachable(reliable_of(task.app), task, f"run_on({where})")
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
