"""Which workers a publication names, and its way to one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery_reliable.app import Reliable
from celery_reliable.exceptions import ConfigurationError, LedgerUnavailable
from celery_reliable.message import NAMED, NamedWorkers
from celery_reliable.model import TaskRef
from celery_reliable.options import in_force, names_workers, patterns_of
from celery_reliable.publishing.errors import not_sent
from celery_reliable.publishing.placement import address_of, placed, placed_member

__all__ = ["place", "refuse_unreachable", "rename"]


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
    named = _named_workers(task, headers)
    if named is None:
        return True
    if not any(named.home):
        named = replace(named, home=address_of(options))
    try:
        living = reliable.living.now(patience_seconds=patience_seconds)
        if named.run:
            found = placed_member(
                reliable.ledger.runs, ref.id, named, living, patience_seconds=patience_seconds
            )
        else:
            found = placed(named, living)
        if found is None and NAMED not in headers and not living:
            refuse_unreachable(reliable, task, "A call", patience_seconds=patience_seconds)
    except LedgerUnavailable as exc:
        raise not_sent(ref, exc) from exc
    if found is None:
        headers[NAMED] = named.as_header()
        return False
    found.put(options)
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


def _named_workers(task: Any, headers: Mapping[str, Any]) -> NamedWorkers | None:
    """Return which workers may run a call of *task*; None: any.

    A retry has the header of the message before it, in which an operator may have named others.
    """
    found = NamedWorkers.of(headers)
    if found is not None:
        return found
    only = patterns_of(in_force(task, "only_workers", headers))
    prefer = patterns_of(in_force(task, "prefer_workers", headers))
    if not only and not prefer:
        return None
    return NamedWorkers(only, prefer)
