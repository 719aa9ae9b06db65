"""Why a task waits in the ledger, with no message on its way: for a time, a worker, an object."""

from __future__ import annotations

from dataclasses import replace

from celery_reliable.clock import span
from celery_reliable.ledger import Look
from celery_reliable.message import Stamp
from celery_reliable.model import State
from celery_reliable.operations.views import Wait, WaitsFor
from celery_reliable.operations.waits.seen import Seen, queue_of, until, waits_for
from celery_reliable.operations.words import at
from celery_reliable.orders import OrderKind

__all__ = ["for_object", "parked", "waits_for_worker"]

#: What the ledger says that such a task waits for.
_WORKERS = "workers"
#: So many workers are named in a sentence.
_MOST_NAMED = 10

#: What a record waits for that an order has parked, before the order's id.
_ORDER = "order "


def parked(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
    """Say what a parked task waits for."""
    record, until_ms = look.record, look.due_ms or 0
    if waits_for_worker(look, seen):
        return _worker(look, seen, now_ms)
    if look.rate_key:
        return waits_for(
            Wait.RATE,
            f"It waits for its moment under the rate of {look.rate_key}: at "
            f"{until(until_ms, now_ms)} it is sent to {queue_of(seen)}, and no worker is held up "
            "until then.",
            since_ms=max(record.published_ms, record.sent_ms),
            until_ms=until_ms,
            queue=seen.queue,
        )
    if look.waiting_for.startswith(_ORDER):
        return _struck(look, seen, now_ms)
    if look.waiting_for or seen.waits_for_object:
        return for_object(look, seen, now_ms)
    if Stamp("", record.epoch).attempt:
        kind, what = Wait.RETRY, f"for its retry after attempt {record.attempt}"
    else:
        kind, what = Wait.ETA, "for its ETA"
    return waits_for(
        kind,
        f"It is parked in the ledger until {until(until_ms, now_ms)}, {what}; then it is sent to "
        f"{queue_of(seen)}.",
        since_ms=max(record.published_ms, record.sent_ms),
        until_ms=until_ms,
        queue=seen.queue,
    )


def waits_for_worker(look: Look, seen: Seen) -> bool:
    """Whether a task waits in the ledger for a worker that may run it."""
    if look.record.state is not State.PARKED or look.waiting_for:
        return look.waiting_for == _WORKERS and look.record.state is State.PARKED
    # No pass has looked at it yet.
    return bool(seen.named is not None and seen.named.only and not seen.eta_ms)


def _worker(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
    only = seen.named.only if seen.named is not None else ()
    meant = ", ".join(map(repr, only)) or "that it names"
    said = f"It may run on workers {meant} only (only_workers), and none of them is alive."
    alive = [one for one in seen.workers if one.state == "alive"]
    may = [one for one in alive if seen.named is not None and seen.named.means(one.nodename)]
    drains = [
        one
        for one in seen.orders
        if one.kind is OrderKind.DRAIN and any(one.names(each.nodename) for each in may)
    ]
    if may:
        said = f"It may run on workers {meant} only (only_workers)."
    if drains:
        told = "; ".join(one.sentence for one in drains)
        said += f" Of those that are alive, some are drained: {told}. `resume` ends that."
    left = [one.nodename for one in may if not any(order.names(one.nodename) for order in drains)]
    if left:
        said += (
            f" Of those {', '.join(left)} is alive, and has no queue of its own, or is leaving: "
            "set worker_direct, or wait for the next pass."
        )
    others = [one.nodename for one in alive if one not in may]
    if others:
        said += f" Alive, and not named: {', '.join(others[:_MOST_NAMED])}"
        said += "." if len(others) <= _MOST_NAMED else f" and {len(others) - _MOST_NAMED} more."
    said += " It is sent as soon as one starts; `move` names others."
    return waits_for(
        Wait.WORKER,
        said,
        since_ms=max(look.record.published_ms, look.record.sent_ms),
        until_ms=look.due_ms or 0,
        workers=only,
    )


def _struck(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
    order_id = look.waiting_for.removeprefix(_ORDER)
    order = next((one for one in seen.orders if one.id == order_id), None)
    if order is None:
        # Lists do not look who has given it; or it has ended, and a pass is about to send it.
        by = f"An operator has struck it (order {order_id})."
    else:
        by = f"An operator has struck it: {order.sentence}."
    found = waits_for(
        Wait.ORDER,
        f"{by} It is parked, and sent to {queue_of(seen)} when that ends.",
        since_ms=max(look.record.published_ms, look.record.sent_ms),
        queue=seen.queue,
    )
    return found if order is None else replace(found, until=order.until)


def for_object(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
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
    return waits_for(
        Wait.OBJECT,
        f"{said} It tries again at {until(until_ms, now_ms)}.",
        since_ms=record.published_ms,
        until_ms=until_ms,
        queue=seen.queue,
        object_key=key,
        holder=held.task_id if held is not None else "",
        holder_since_ms=seen.holder_since_ms,
    )


def _in_line(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
    record, key = look.record, look.record.in_line_of
    said = f"It stands in line for the object {seen.object_name or key}"
    if seen.before is not None:
        said += f", with {seen.before} before it"
    if seen.holders:
        said += f"; {' and '.join(seen.holders)} {'has' if len(seen.holders) == 1 else 'have'} it"
    return waits_for(
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
