"""Why a task waits for an object: who has it, and how many stand in line before it."""

from __future__ import annotations

from celery_reliable.clock import span
from celery_reliable.ledger import Look
from celery_reliable.operations.times import at
from celery_reliable.operations.waits.answer import Wait, Why
from celery_reliable.operations.waits.seen import Seen
from celery_reliable.operations.waits.words import until

__all__ = ["for_object"]


def for_object(look: Look, seen: Seen, now_ms: int) -> Why:
    """Say who has the object that a task waits for."""
    record = look.record
    until_ms = seen.eta_ms or look.due_ms or 0
    key = look.waiting_for or seen.object_key
    name = seen.object_name or key
    held = seen.holder
    if record.in_line_of:
        return _in_line(look, seen, now_ms)
    if look.waiting_for and not seen.object_key:
        # Lists do not look at who has it.
        said = f"It waits for the object {name}, which another task had when it last tried."
    elif held is None or held.task_id == record.task_id:
        whose = "another task had" if not key else f"{name} was another task's, and is free now"
        said = f"It waits for its object, which {whose}." if not key else f"Its object {whose}."
    elif held.kept_ms is not None:
        said = (
            f"It waits for the object {name}, which is kept after the success of {held.task_id} "
            f"(once_for_seconds), for {span(held.kept_ms / 1000)} yet."
        )
    else:
        since = f" since {at(seen.holder_since_ms)}" if seen.holder_since_ms else ""
        said = f"It waits for the object {name}, which {held.task_id} has{since}."
    return Why(
        Wait.OBJECT,
        f"{said} It tries again at {until(until_ms, now_ms)}.",
        since_ms=record.published_ms,
        until_ms=until_ms,
        queue=seen.queue,
        object_key=key,
        holder=held.task_id if held is not None else "",
        holder_since_ms=seen.holder_since_ms,
    )


def _in_line(look: Look, seen: Seen, now_ms: int) -> Why:
    record, key = look.record, look.record.in_line_of
    said = f"It stands in line for the object {seen.object_name or key}"
    if seen.before is not None:
        said += f", with {seen.before} before it"
    if seen.holders:
        said += f"; {' and '.join(seen.holders)} {'has' if len(seen.holders) == 1 else 'have'} it"
    return Why(
        Wait.OBJECT,
        f"{said}. It goes on as soon as there is a place and its turn has come; it is looked at "
        f"again at {until(look.due_ms or 0, now_ms)}, at the latest.",
        since_ms=record.published_ms,
        until_ms=look.due_ms or 0,
        queue=seen.queue,
        before=seen.before,
        object_key=key,
        holder=seen.holders[0] if seen.holders else "",
    )
