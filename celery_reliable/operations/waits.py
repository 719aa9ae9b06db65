"""Why a task waits, or what becomes of it just now: one plain sentence, and the same as data.

Pure: it is told what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, cast

from celery_reliable.ledger import Held, Look
from celery_reliable.message import NamedWorkers, Stamp
from celery_reliable.model import EndedTask, State
from celery_reliable.operations import shapes
from celery_reliable.operations.order_words import in_words
from celery_reliable.operations.times import at, iso, span
from celery_reliable.operations.workers import WorkerView
from celery_reliable.orders import Order, OrderKind

__all__ = ["Seen", "Wait", "Why", "absent", "ended", "waits_for_worker", "why"]

#: What the ledger says that such a task waits for.
_WORKERS = "workers"
#: So many workers are named in a sentence.
_MOST_NAMED = 10

#: What a record waits for that an order has parked, before the order's id.
_ORDER = "order "


class Wait(str, Enum):
    """What a task waits for."""

    #: Its ETA: in the ledger, or in a worker that was delivered it.
    ETA = "eta"
    #: The pause before its next retry.
    RETRY = "retry"
    #: An operator has struck it.
    ORDER = "order"
    #: An object that another task has.
    OBJECT = "object"
    #: A worker that may run it: none of those that it names is alive.
    WORKER = "worker"
    #: Its moment, as its rate is limited.
    RATE = "rate"
    #: Its turn in its queue.
    QUEUE = "queue"
    #: A worker that was delivered it and has not begun it.
    FETCHED = "fetched"
    #: To be sent: no message of it is on its way.
    RESEND = "resend"
    #: A worker that runs no other suspect: it ran in a worker that died.
    ALONE = "alone"
    #: An attempt that was taken from its worker, and is being stopped.
    STOPPING = "stopping"
    #: The end of the attempt that runs.
    RUNNING = "running"
    #: The canvas that took its place.
    CANVAS = "canvas"
    #: The end of what still runs of it: it was called off itself.
    CALLED_OFF = "called_off"
    #: Celery to be told that it is a dead letter.
    OWED = "owed"
    #: An operator: it is a dead letter.
    DEAD = "dead"
    #: Nothing: it has ended.
    ENDED = "ended"
    #: Nothing: nobody knows it.
    ABSENT = "absent"


@dataclass(frozen=True)
class Why:
    """Why a task waits.  What is empty or None does not apply, or is not known.

    Attributes:
        kind: what for.
        sentence: the same in words, with names and times; for people.
        since_ms: since when it waits or runs, by the server's clock.
        until_ms: until when, at the latest looked at again.
        queue: where its message is.
        before: how many messages are popped before its own, or how many tasks stand in line before
            it; None: too many to look.
        depth: how many messages wait in that queue.
        worker: who runs it, has fetched it, or is to stop it.
        pid: of the process that claimed it: it runs it, or is its worker's main process.
        object_key: what it waits for.
        holder: the task that has the object.
        holder_since_ms: since when.
        workers: patterns of the workers that may run it.
    """

    kind: Wait
    sentence: str
    since_ms: int = 0
    until_ms: int = 0
    queue: str = ""
    before: int | None = None
    depth: int | None = None
    worker: str = ""
    pid: int = 0
    object_key: str = ""
    holder: str = ""
    holder_since_ms: int = 0
    workers: tuple[str, ...] = ()

    def as_dict(self) -> shapes.WaitsFor:
        """What applies, as plain JSON values."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            is_zero = value == 0 and one.name not in ("before", "depth")
            if value is None or value in ("", ()) or is_zero:
                continue
            if one.name.endswith("_ms"):
                found[one.name.removesuffix("_ms")] = iso(value)
            elif isinstance(value, tuple):
                found[one.name] = [*value]
            else:
                found[one.name] = value.value if isinstance(value, Enum) else value
        return cast(shapes.WaitsFor, found)


@dataclass(frozen=True)
class Seen:
    """What was seen of a task beside its record.

    Attributes:
        queue: that its message was sent to; empty where it cannot be told.
        publisher: its message's ``origin``; empty where it has none.
        eta_ms: of its message, if that lies in the future; 0 for none.
        waits_for_object: its message says that it waits for an object.
        object_key: the object that it waits for, if that can be told.
        holder: who has that.
        holders: all who have a place of it, where it stands in line.
        holder_since_ms: since when.
        orders: those by which it may be kept from running, or its queue is.
        worker: of its attempt, or the one that is to stop one; None: the ledger knows none.
        before: how many messages are popped before its own; None: it was not among the first.
        depth: of its queue; None: nobody looked.
        is_in_queue: whether its message was seen in its queue, or may be there.
        fetched_by: the worker that was delivered its message.
        named: which workers may run it, as its message says; None: any.
        workers: those that there are, of a task that waits for one.
    """

    queue: str = ""
    publisher: str = ""
    eta_ms: int = 0
    waits_for_object: bool = False
    object_key: str = ""
    holder: Held | None = None
    holders: tuple[str, ...] = ()
    holder_since_ms: int = 0
    orders: tuple[Order, ...] = ()
    worker: WorkerView | None = None
    before: int | None = None
    depth: int | None = None
    is_in_queue: bool = True
    fetched_by: str = ""
    named: NamedWorkers | None = None
    workers: tuple[WorkerView, ...] = ()


def ended(kept: EndedTask) -> Why:
    """Say how a task ended of which something was kept."""
    how = f"ended as {kept.outcome}" if kept.outcome else "ended"
    by = f", by {kept.by}" if kept.outcome == "DISCARDED" and kept.by else ""
    because = f" ({kept.by})" if kept.by and not by else ""
    where = f", by its attempt {kept.attempts} on {_node(kept.owner)}" if kept.owner else ""
    return Why(
        Wait.ENDED,
        f"It {how}{because}{by}{where} {at(kept.ended_ms)}.",
        since_ms=kept.ended_ms,
        worker=kept.owner,
        pid=kept.pid,
    )


def absent(task_id: str) -> Why:
    """Say what it means that the ledger has no record of a task."""
    return Why(
        Wait.ABSENT,
        f"The ledger knows no task {task_id!r}: it has ended and was settled (its result, if it "
        "has one, is in the result backend), or it was revoked, discarded or has expired, or "
        "nobody has published it under this id with base=ReliableTask. No attempt of it runs, and "
        "none will.",
    )


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
        return _parked(look, seen, now_ms)
    return _queued(look, seen, now_ms)


def _running(look: Look, seen: Seen, now_ms: int) -> Why:
    record = look.record
    # A main process may claim for one of its pool's: which one runs it nobody has noted.
    is_main = seen.worker is not None and seen.worker.pid == record.pid
    where = "" if is_main else f" in process {record.pid}"
    said = (
        f"Attempt {record.attempt} runs on {_node(record.owner)}{where}, since "
        f"{at(record.claimed_ms)} ({_ago(now_ms, record.claimed_ms)})."
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
        said += f" {_node(record.stopping_on)} is still to stop an attempt of it."
    said += " `dead-letters replay` runs it again, `dead-letters discard` forgets it."
    kind = Wait.OWED if record.is_owed else Wait.DEAD
    return Why(kind, said, since_ms=look.buried_ms, worker=record.stopping_on)


def _waiting(look: Look, now_ms: int) -> Why:
    record = look.record
    if record.is_called_off:
        return Why(
            Wait.CALLED_OFF,
            "It was called off (revoked, expired or discarded) and does not run again. "
            f"{_node(record.stopping_on) or 'A worker'} is still to stop what runs of it.",
            worker=record.stopping_on,
        )
    since_ms = record.waiting_ms or record.published_ms
    known = f" Known members: {', '.join(record.members)}." if record.members else ""
    return Why(
        Wait.CANVAS,
        f"It replaced itself by a canvas, {_ago(now_ms, since_ms)} ago, and waits for that to end: "
        f"its id is published again by the canvas's last member.{known}",
        since_ms=since_ms,
    )


def _parked(look: Look, seen: Seen, now_ms: int) -> Why:
    record, until_ms = look.record, look.due_ms or 0
    if waits_for_worker(look, seen):
        return _worker(look, seen, now_ms)
    if look.rate_key:
        return Why(
            Wait.RATE,
            f"It waits for its moment under the rate of {look.rate_key}: at "
            f"{_until(until_ms, now_ms)} it is sent to {_queue(seen)}, and no worker is held up "
            "until then.",
            since_ms=max(record.published_ms, record.sent_ms),
            until_ms=until_ms,
            queue=seen.queue,
        )
    if look.waiting_for.startswith(_ORDER):
        return _struck(look, seen, now_ms)
    if look.waiting_for or seen.waits_for_object:
        return _object(look, seen, now_ms)
    if Stamp("", record.epoch).attempt:
        kind, what = Wait.RETRY, f"for its retry after attempt {record.attempt}"
    else:
        kind, what = Wait.ETA, "for its ETA"
    return Why(
        kind,
        f"It is parked in the ledger until {_until(until_ms, now_ms)}, {what}; then it is sent to "
        f"{_queue(seen)}.",
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
    if may:
        names = ", ".join(one.nodename for one in may)
        said = (
            f"It may run on workers {meant} only (only_workers). Of those {names} is alive, and "
            "has no queue of its own, or is leaving: set worker_direct, or wait for the next pass."
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
        f"{by} It is parked, and sent to {_queue(seen)} when that ends.",
        since_ms=max(look.record.published_ms, look.record.sent_ms),
        until_ms=until_ms,
        queue=seen.queue,
    )


def _queued(look: Look, seen: Seen, now_ms: int) -> Why:
    record, until_ms = look.record, look.due_ms or 0
    since_ms = max(record.published_ms, record.sent_ms)
    if record.stopping_on:
        return Why(
            Wait.STOPPING,
            f"An attempt of it was taken from {_node(record.stopping_on)} ({record.cause}), and "
            "the next one begins when that worker has stopped it or is declared dead.",
            since_ms=since_ms,
            until_ms=until_ms,
            worker=record.stopping_on,
        )
    if record.is_revoked:
        return Why(
            Wait.CALLED_OFF,
            "It was revoked as it ran, and its attempt had no outcome: the next pass of the "
            "sweeper ends it.",
            since_ms=since_ms,
            until_ms=until_ms,
        )
    if look.has_to_wait:
        return Why(
            Wait.ALONE,
            "It ran in workers that died, with others, and nobody knows which of them it was: it "
            "waits to be run by a worker that runs no other such task, and is sent to one at "
            f"{_until(until_ms, now_ms)}.",
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
        )
    if record.is_unsent:
        lost = f"was lost ({record.cause})" if record.cause else "could not be sent"
        return Why(
            Wait.RESEND,
            f"It {lost}, and waits to be sent to {_queue(seen)} again at "
            f"{_until(until_ms, now_ms)}.",
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
        )
    waiting_for = "" if look.rate_key else look.waiting_for
    if (waiting_for or seen.waits_for_object) and (seen.eta_ms or waiting_for):
        return _object(look, seen, now_ms)
    return _sent(look, seen, now_ms, since_ms)


def _sent(look: Look, seen: Seen, now_ms: int, since_ms: int) -> Why:
    """Say where the message of a queued task is."""
    record = look.record
    again = f" Its last attempt was lost ({record.cause})." if record.cause else ""
    if seen.fetched_by:
        where = f"{_node(seen.fetched_by)} has fetched it and not begun it"
        if seen.eta_ms:
            kind, until_ms = Wait.ETA, seen.eta_ms
            said = f"{where}: it begins at {_until(seen.eta_ms, now_ms)}."
        else:
            kind, until_ms = Wait.FETCHED, 0
            said = (
                f"{where}: it waits for a free process there, or goes back to its queue within "
                "seconds (GIVE_BACK_SECONDS)."
            )
        return Why(
            kind,
            said + again,
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
            worker=seen.fetched_by,
        )
    if not seen.is_in_queue:
        due_ms = look.due_ms or 0
        return Why(
            Wait.RESEND,
            f"Its message is neither in {_queue(seen)} nor with a worker: a pass of the sweeper "
            f"looks at it at {_until(due_ms, now_ms)}, and sends it again.{again}",
            since_ms=since_ms,
            until_ms=due_ms,
            queue=seen.queue,
        )
    paused = [one for one in seen.orders if one.kind is OrderKind.PAUSE and one.names(seen.queue)]
    if seen.queue and paused:
        order = paused[0]
        return Why(
            Wait.ORDER,
            f"It waits in {_queue(seen)}, from which nobody takes: {in_words(order)}.{again}",
            since_ms=since_ms,
            until_ms=order.until_ms,
            queue=seen.queue,
        )
    told = f"It waits in {_queue(seen)} since {at(since_ms)} ({_ago(now_ms, since_ms)})"
    if seen.before is not None:
        told += f", with {seen.before} before it"
    elif seen.depth is not None:
        told += f", among {seen.depth} that wait there"
    return Why(
        Wait.QUEUE,
        f"{told}.{again}",
        since_ms=since_ms,
        queue=seen.queue,
        before=seen.before,
        depth=seen.depth,
    )


def _object(look: Look, seen: Seen, now_ms: int) -> Why:
    record = look.record
    until_ms = seen.eta_ms or look.due_ms or 0
    key = look.waiting_for or seen.object_key
    held = seen.holder
    if record.in_line_of:
        return _in_line(look, seen, now_ms)
    if look.waiting_for and not seen.object_key:
        # Lists do not look at who has it.
        said = f"It waits for the object {key}, which another task had when it last tried."
    elif held is None or held.task_id == record.task_id:
        whose = "another task had" if not key else f"{key} was another task's, and is free now"
        said = f"It waits for its object, which {whose}." if not key else f"Its object {whose}."
    elif held.kept_ms is not None:
        said = (
            f"It waits for the object {key}, which is kept after the success of {held.task_id} "
            f"(once_for_seconds), for {span(held.kept_ms / 1000)} yet."
        )
    else:
        since = f" since {at(seen.holder_since_ms)}" if seen.holder_since_ms else ""
        said = f"It waits for the object {key}, which {held.task_id} has{since}."
    return Why(
        Wait.OBJECT,
        f"{said} It tries again at {_until(until_ms, now_ms)}.",
        since_ms=record.published_ms,
        until_ms=until_ms,
        queue=seen.queue,
        object_key=key,
        holder=held.task_id if held is not None else "",
        holder_since_ms=seen.holder_since_ms,
    )


def _in_line(look: Look, seen: Seen, now_ms: int) -> Why:
    record, key = look.record, look.record.in_line_of
    said = f"It stands in line for the object {key}"
    if seen.before is not None:
        said += f", with {seen.before} before it"
    if seen.holders:
        said += f"; {' and '.join(seen.holders)} {'has' if len(seen.holders) == 1 else 'have'} it"
    return Why(
        Wait.OBJECT,
        f"{said}. It goes on as soon as there is a place and its turn has come; it is looked at "
        f"again at {_until(look.due_ms or 0, now_ms)}, at the latest.",
        since_ms=record.published_ms,
        until_ms=look.due_ms or 0,
        queue=seen.queue,
        before=seen.before,
        object_key=key,
        holder=seen.holders[0] if seen.holders else "",
    )


def _node(worker: str) -> str:
    """A worker's name without what tells one start of it from another."""
    return worker.rpartition("/")[0] or worker


def _queue(seen: Seen) -> str:
    return f"the queue {seen.queue!r}" if seen.queue else "its queue"


def _ago(now_ms: int, since_ms: int) -> str:
    return span((now_ms - since_ms) / 1000)


def _until(until_ms: int, now_ms: int) -> str:
    left_seconds = (until_ms - now_ms) / 1000
    return f"{at(until_ms)} ({f'in {span(left_seconds)}' if left_seconds > 0 else 'now'})"
