"""Why a task waits in the ledger, with no message on its way."""

from __future__ import annotations

from celery_reliable.ledger import Look
from celery_reliable.message import Stamp
from celery_reliable.model import State
from celery_reliable.operations.order_words import in_words
from celery_reliable.operations.waits.answer import Wait, Why
from celery_reliable.operations.waits.objects import for_object
from celery_reliable.operations.waits.seen import Seen
from celery_reliable.operations.waits.words import queue_of, until
from celery_reliable.orders import OrderKind

__all__ = ["parked", "waits_for_worker"]

#: What the ledger says that such a task waits for.
_WORKERS = "workers"
#: So many workers are named in a sentence.
_MOST_NAMED = 10

#: What a record waits for that an order has parked, before the order's id.
_ORDER = "order "


def parked(look: Look, seen: Seen, now_ms: int) -> Why:
    """Say what a parked task waits for."""
    record, until_ms = look.record, look.due_ms or 0
    if waits_for_worker(look, seen):
        return _worker(look, seen, now_ms)
    if look.rate_key:
        return Why(
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
    return Why(
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


def _worker(look: Look, seen: Seen, now_ms: int) -> Why:
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
        told = "; ".join(f"{in_words(one)} (order {one.id})" for one in drains)
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
    return Why(
        Wait.WORKER,
        said,
        since_ms=max(look.record.published_ms, look.record.sent_ms),
        until_ms=look.due_ms or 0,
        workers=only,
    )


def _struck(look: Look, seen: Seen, now_ms: int) -> Why:
    order_id = look.waiting_for.removeprefix(_ORDER)
    order = next((one for one in seen.orders if one.id == order_id), None)
    if order is None:
        # Lists do not look who has given it; or it has ended, and a pass is about to send it.
        by = f"An operator has struck it (order {order_id})."
    else:
        by = f"An operator has struck it: {in_words(order)}."
    until_ms = order.until_ms if order is not None else 0
    return Why(
        Wait.ORDER,
        f"{by} It is parked, and sent to {queue_of(seen)} when that ends.",
        since_ms=max(look.record.published_ms, look.record.sent_ms),
        until_ms=until_ms,
        queue=seen.queue,
    )
