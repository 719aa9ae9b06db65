"""Why a task waits, in whatever state it is."""

from __future__ import annotations

from celery_reliable.leases import nodename_of
from celery_reliable.ledger import Look
from celery_reliable.model import EndedTask, State
from celery_reliable.operations.times import at
from celery_reliable.operations.waits.answer import Wait, Why
from celery_reliable.operations.waits.parked import parked
from celery_reliable.operations.waits.queued import queued
from celery_reliable.operations.waits.seen import Seen
from celery_reliable.operations.waits.words import ago

__all__ = ["absent", "ended", "why"]


def why(look: Look, seen: Seen, now_ms: int) -> Why:
    """Return why the task of *look* waits."""
    state = look.record.state
    if state is State.RUNNING:
        return _running(look, seen, now_ms)
    if state is State.DEAD:
        return _dead(look)
    if state is State.WAITING:
        return _waiting(look, now_ms)
    if state is State.PARKED:
        return parked(look, seen, now_ms)
    return queued(look, seen, now_ms)


def _running(look: Look, seen: Seen, now_ms: int) -> Why:
    record = look.record
    # A main process may claim for one of its pool's: which one runs it nobody has noted.
    is_main = seen.worker is not None and seen.worker.pid == record.pid
    where = "" if is_main else f" in process {record.pid}"
    said = (
        f"Attempt {record.attempt} runs on {nodename_of(record.owner)}{where}, since "
        f"{at(record.claimed_ms)} ({ago(now_ms, record.claimed_ms)})."
    )
    if look.due_ms:
        said += f" It has until {at(look.due_ms)} (time_to_run_seconds)."
    if record.is_revoked:
        said += " It was revoked: if this attempt ends without an outcome, there is no other."
    if seen.worker is not None and seen.worker.state != "alive":
        said += (
            f" But that worker is {seen.worker.state}: a pass of the sweeper takes the attempt "
            "from it, and the task goes back to its queue."
        )
    return Why(
        Wait.RUNNING,
        said,
        since_ms=record.claimed_ms,
        until_ms=look.due_ms or 0,
        worker=record.owner,
        pid=record.pid,
    )


def _dead(look: Look) -> Why:
    record = look.record
    said = f"It is a dead letter since {at(look.buried_ms)}: {look.reason}"
    said += f" ({look.exception})." if look.exception else "."
    if record.is_owed:
        said += " Celery is still to be told of it (its failure, link_error, its chord)."
    if record.stopping_on:
        said += f" {nodename_of(record.stopping_on)} is still to stop an attempt of it."
    said += " `dead-letters replay` runs it again, `dead-letters discard` forgets it."
    kind = Wait.OWED if record.is_owed else Wait.DEAD
    return Why(kind, said, since_ms=look.buried_ms, worker=record.stopping_on)


def _waiting(look: Look, now_ms: int) -> Why:
    record = look.record
    if record.is_called_off:
        return Why(
            Wait.CALLED_OFF,
            "It was called off (revoked, expired or discarded) and does not run again. "
            f"{nodename_of(record.stopping_on) or 'A worker'} is still to stop what runs of it.",
            worker=record.stopping_on,
        )
    since_ms = record.waiting_ms
    known = f" Known members: {', '.join(record.members)}." if record.members else ""
    return Why(
        Wait.CANVAS,
        f"It replaced itself by a canvas, {ago(now_ms, since_ms)} ago, and waits for that to end: "
        f"its id is published again by the canvas's last member.{known}",
        since_ms=since_ms,
    )


def ended(kept: EndedTask) -> Why:
    """Say how a task ended of which something was kept."""
    how = f"ended as {kept.outcome}" if kept.outcome else "ended"
    by = f", by {kept.by}" if kept.outcome == "DISCARDED" and kept.by else ""
    because = f" ({kept.by})" if kept.by and not by else ""
    where = f", by its attempt {kept.attempts} on {nodename_of(kept.owner)}" if kept.owner else ""
    when = f" {at(kept.ended_ms)}" if kept.ended_ms else ""
    return Why(
        Wait.ENDED,
        f"It {how}{because}{by}{where}{when}.",
        since_ms=kept.ended_ms,
        worker=kept.owner,
        pid=kept.pid,
    )


def absent(task_id: str) -> Why:
    """Say what it means that the ledger has no record of a task."""
    return Why(
        Wait.ABSENT,
        f"The ledger knows no task {task_id!r}, and the app's result backend tells nothing of it: "
        "it has ended and its result is not kept, or it was revoked, discarded or has expired, or "
        "nobody has published it under this id with base=ReliableTask. No attempt of it runs, and "
        "none will.",
    )
