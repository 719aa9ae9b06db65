"""Where a task goes that only some workers may run, or that some should: the choice of a worker."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery_reliable.app import Reliable
from celery_reliable.exceptions import ConfigurationError, LedgerUnavailable
from celery_reliable.ledger import LivingWorker, Runs
from celery_reliable.message import NAMED, Envelope, NamedWorkers, address_of
from celery_reliable.model import TaskRef
from celery_reliable.options import NAMING, in_force, names_workers, patterns_of
from celery_reliable.publishing.errors import not_sent

__all__ = [
    "Placement",
    "at_home",
    "named_anew",
    "place",
    "placed",
    "refuse_unreachable",
    "rename",
]


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
            refuse_unreachable(reliable, task, "A call", patience_seconds=patience_seconds)
    except LedgerUnavailable as exc:
        raise not_sent(ref, exc) from exc
    headers[NAMED] = (named if found is None else found.named).as_header()
    if found is None:
        return False
    if (found.exchange, found.routing_key) != address_of(options):
        options.update(exchange=found.exchange, routing_key=found.routing_key, declare=[])
    return True


def refuse_unreachable(
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


def rename(headers: dict[str, Any], moved: str) -> None:
    """Let a message name the workers that an operator has named meanwhile, as text."""
    before = NamedWorkers.of(headers)
    headers.pop(NAMED, None)
    named = NamedWorkers.from_text(moved)
    if before is not None:
        # A member of a run stays one; whoever is not its worker sends it on.
        pin = before.pin if named.means(before.pin) else ""
        named = replace(named, home=before.home, run=before.run, pin=pin)
    if named.is_any_named or any(named.home):
        # It may be on its way to the queue of one worker. What names nobody any more still says
        # which queue is its usual one, so that it is found there when that worker has died.
        headers[NAMED] = named.as_header()
