"""Why a task waits, in whatever state it is."""

from __future__ import annotations

from dataclasses import replace

from celery_reliable.leases import nodename_of
from celery_reliable.ledger import Look
from celery_reliable.model import EndedTask, State
from celery_reliable.operations.views import Wait, WaitsFor
from celery_reliable.operations.waits.parked import for_object, parked
from celery_reliable.operations.waits.seen import Seen, ago, queue_of, until, waits_for
from celery_reliable.operations.words import at
from celery_reliable.orders import OrderKind

__all__ = ["absent", "ended", "why"]


def why(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
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
    return _queued(look, seen, now_ms)


def _running(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
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
    return waits_for(
        Wait.RUNNING,
        said,
        since_ms=record.claimed_ms,
        until_ms=look.due_ms or 0,
        worker=record.owner,
        pid=record.pid,
    )


def _dead(look: Look) -> WaitsFor:
    record = look.record
    said = f"It is a dead letter since {at(look.buried_ms)}: {look.reason}"
    said += f" ({look.exception})." if look.exception else "."
    if record.is_owed:
        said += " Celery is still to be told of it (its failure, link_error, its chord)."
    if record.stopping_on:
        said += f" {nodename_of(record.stopping_on)} is still to stop an attempt of it."
    said += " `dead-letters replay` runs it again, `dead-letters discard` forgets it."
    kind = Wait.OWED if record.is_owed else Wait.DEAD
    return waits_for(kind, said, since_ms=look.buried_ms, worker=record.stopping_on)


def _waiting(look: Look, now_ms: int) -> WaitsFor:
    record = look.record
    if record.is_called_off:
        return waits_for(
            Wait.CALLED_OFF,
            "It was called off (revoked, expired or discarded) and does not run again. "
            f"{nodename_of(record.stopping_on) or 'A worker'} is still to stop what runs of it.",
            worker=record.stopping_on,
        )
    since_ms = record.waiting_ms
    known = f" Known members: {', '.join(record.members)}." if record.members else ""
    return waits_for(
        Wait.CANVAS,
        f"It replaced itself by a canvas, {ago(now_ms, since_ms)} ago, and waits for that to end: "
        f"its id is published again by the canvas's last member.{known}",
        since_ms=since_ms,
    )


def _queued(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
    """Say what a queued task waits for."""
    record, until_ms = look.record, look.due_ms or 0
    since_ms = max(record.published_ms, record.sent_ms)
    if record.stopping_on:
        return waits_for(
            Wait.STOPPING,
            f"An attempt of it was taken from {nodename_of(record.stopping_on)} ({record.cause}), "
            "and the next one begins when that worker has stopped it or is declared dead.",
            since_ms=since_ms,
            until_ms=until_ms,
            worker=record.stopping_on,
        )
    if record.is_revoked:
        return waits_for(
            Wait.CALLED_OFF,
            "It was revoked as it ran, and its attempt had no outcome: the next pass of the "
            "sweeper ends it.",
            since_ms=since_ms,
            until_ms=until_ms,
        )
    if look.has_to_wait:
        return waits_for(
            Wait.ALONE,
            "It ran in workers that died, with others, and nobody knows which of them it was: it "
            "waits to be run by a worker that runs no other such task, and is sent to one at "
            f"{until(until_ms, now_ms)}.",
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
        )
    if record.is_unsent:
        if record.cause:
            lost = f"It was lost ({record.cause}), and"
        elif look.history and look.history[-1].what == "moved":
            lost = "It was moved, and"
        else:
            # It was stopped, or could not be sent: that is not noted.
            lost = "It"
        only = seen.named.only if seen.named is not None else ()
        where = f"a worker of {', '.join(map(repr, only))}" if only else queue_of(seen)
        return waits_for(
            Wait.RESEND,
            f"{lost} waits to be sent to {where} at {until(until_ms, now_ms)}.",
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
        )
    waiting_for = "" if look.rate_key else look.waiting_for
    if (waiting_for or seen.waits_for_object) and (seen.eta_ms or waiting_for):
        return for_object(look, seen, now_ms)
    return _sent(look, seen, now_ms, since_ms)


def _sent(look: Look, seen: Seen, now_ms: int, since_ms: int) -> WaitsFor:
    """Say where the message of a queued task is."""
    record = look.record
    again = f" Its last attempt was lost ({record.cause})." if record.cause else ""
    if seen.fetched_by:
        where = f"{nodename_of(seen.fetched_by)} has fetched it and not begun it"
        if seen.eta_ms:
            kind, until_ms = Wait.ETA, seen.eta_ms
            said = f"{where}: it begins at {until(seen.eta_ms, now_ms)}."
        else:
            kind, until_ms = Wait.FETCHED, 0
            said = (
                f"{where}: it waits for a free process there, unless it goes back to its queue "
                "before (GIVE_BACK_SECONDS)."
            )
        return waits_for(
            kind,
            said + again,
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
            worker=seen.fetched_by,
        )
    if not seen.is_in_queue:
        due_ms = look.due_ms or 0
        return waits_for(
            Wait.RESEND,
            f"Its message is neither in {queue_of(seen)} nor with a worker: a pass of the sweeper "
            f"looks at it at {until(due_ms, now_ms)}, and sends it again.{again}",
            since_ms=since_ms,
            until_ms=due_ms,
            queue=seen.queue,
        )
    paused = [one for one in seen.orders if one.kind is OrderKind.PAUSE and one.names(seen.queue)]
    if seen.queue and paused:
        order = paused[0]
        found = waits_for(
            Wait.ORDER,
            f"It waits in {queue_of(seen)}, from which nobody takes: {order.sentence}.{again}",
            since_ms=since_ms,
            queue=seen.queue,
        )
        return replace(found, until=order.until)
    told = f"It waits in {queue_of(seen)} since {at(since_ms)} ({ago(now_ms, since_ms)})"
    if seen.before is not None:
        told += f", with {seen.before} before it"
    elif seen.depth is not None:
        told += f", among {seen.depth} that wait there"
    return waits_for(
        Wait.QUEUE,
        f"{told}.{again}",
        since_ms=since_ms,
        queue=seen.queue,
        before=seen.before,
        depth=seen.depth,
    )


def ended(kept: EndedTask) -> WaitsFor:
    """Say how a task ended of which something was kept."""
    how = f"ended as {kept.outcome}" if kept.outcome else "ended"
    by = f", by {kept.by}" if kept.outcome == "DISCARDED" and kept.by else ""
    because = f" ({kept.by})" if kept.by and not by else ""
    where = f", by its attempt {kept.attempts} on {nodename_of(kept.owner)}" if kept.owner else ""
    when = f" {at(kept.ended_ms)}" if kept.ended_ms else ""
    return waits_for(
        Wait.ENDED,
        f"It {how}{because}{by}{where}{when}.",
        since_ms=kept.ended_ms,
        worker=kept.owner,
        pid=kept.pid,
    )


def absent(task_id: str) -> WaitsFor:
    """Say what it means that the ledger has no record of a task."""
    return waits_for(
        Wait.ABSENT,
        f"The ledger knows no task {task_id!r}, and the app's result backend tells nothing of it: "
        "it has ended and its result is not kept, or it was revoked, discarded or has expired, or "
        "nobody has published it under this id with base=ReliableTask. No attempt of it runs, and "
        "none will.",
    )
