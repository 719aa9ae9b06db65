"""A task that becomes a canvas: who may publish its id from then on.

The id lives on as that of the canvas's last member.  Anybody else who publishes it meanwhile (an id
may be derived from a database row) publishes a task that is alive.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from celery_reliable.app import reliable_of
from celery_reliable.context import RunningAttempt, running
from celery_reliable.ledger import FOREVER, Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import HEIR, Envelope, Stamp, new_epoch
from celery_reliable.model import State, TaskRef

__all__ = ["adopt", "bequeathing"]

#: At most so many members are noted, by which a pass sees whether the canvas still lives.
_MOST_MEMBERS = 100
#: Where a signature keeps those that it is made of.
_PARTS = ("tasks", "header", "body")


def bequeathing(on_replace: Any) -> Any:
    """Return a task's handler ``on_replace`` before which its id is left to the canvas."""

    @functools.wraps(on_replace)
    def replaced(task: Any, canvas: Any) -> Any:
        attempt = running.get()
        # Handlers call those of their bases with the same canvas, and each class wraps its handler.
        if (
            attempt is not None
            and attempt.claim.task_id == task.request.id
            and attempt.canvas is not canvas
        ):
            attempt.canvas = canvas
            _bequeath(task, attempt, canvas)
        return on_replace(task, canvas)

    return replaced


def adopt(ledger: Ledger, ref: TaskRef, message: str, heir: str, *, is_used: bool = False) -> bool:
    """Record what somebody without the package has published: under a replaced task's id (*heir*),
    or what is to wait before its first claim; a pass sends it.  False when the id is in use, and it
    is no publication of that canvas.  *is_used*: as `Publications.record`.  Waits for the ledger.
    """
    sent = Envelope.from_text(message)
    while True:
        epoch = ledger.senders.new_epoch(0)
        answer = ledger.record(
            ref,
            epoch=epoch,
            state=State.WAITING,
            due_in_ms=0,
            message=sent.stamped(Stamp(ledger.generation, epoch)).to_text(),
            heir=heir,
            is_used=is_used,
            patience_seconds=FOREVER,
        )
        if isinstance(answer, answers.OtherGeneration):
            ledger.generation = answer.current
        elif not isinstance(answer, answers.Unknown):
            ledger.senders.answered(epoch)
            return isinstance(answer, answers.Recorded)


def _bequeath(task: Any, attempt: RunningAttempt, canvas: Any) -> None:
    """Leave the id of a running attempt to *canvas*, which is about to be published.

    Each member gets a header that says whose heir it is; retries, and the members that are
    published by other members, keep it.  Waits for the ledger as long as it takes.
    """
    heir = new_epoch(attempt.claim.attempt)
    # Celery moves the rest of the task's own chain behind the canvas.  Those tasks are no members
    # of it, and may have the header of an outer canvas, of which this task is a member.
    followers = {(one.get("options") or {}).get("task_id") for one in task.request.chain or ()}
    found = set(_mark(canvas, heir, followers)) - {attempt.claim.task_id}
    attempt.members = tuple(sorted(found)[:_MOST_MEMBERS])
    # Before the canvas is published, or the ledger would refuse the last member of a quick one.
    answer = reliable_of(task.app).ledger.touch(attempt.claim, heir=heir, patience_seconds=FOREVER)
    if isinstance(answer, answers.Touched) and answer.is_used:
        # A result that is there already is of an earlier task, and no sign that the canvas has
        # ended.
        try:
            # A process that only publishes does not load this.
            from celery_reliable.results import seen

            attempt.stored = seen(task.backend.get_task_meta(attempt.claim.task_id, cache=False))
        except Exception as exc:
            # Backends raise what their drivers raise.
            logger.info("result_not_read id=%s error=%s", attempt.claim.task_id, exc)


def _mark(signature: Any, heir: str, followers: set[str | None]) -> Iterator[str]:
    """Give every member the header, and yield their ids."""
    options = signature.setdefault("options", {})
    if options.get("task_id") in followers - {None}:
        return
    options["headers"] = {**(options.get("headers") or {}), HEIR: heir}
    if not signature.get("subtask_type"):
        if options.get("task_id"):
            yield str(options["task_id"])
        return
    for name in _PARTS:
        parts = (signature.get("kwargs") or {}).get(name)
        for part in parts if isinstance(parts, Sequence) else (parts,):
            if isinstance(part, dict):
                yield from _mark(part, heir, followers)
