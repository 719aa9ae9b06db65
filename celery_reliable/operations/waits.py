"""Why a task waits, or what becomes of it just now: one plain sentence, and the same as data.

Pure: it is told what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from celery_reliable.clock import span
from celery_reliable.leases import nodename_of
from celery_reliable.ledger import Held, Look
from celery_reliable.message import NamedWorkers, Stamp
from celery_reliable.model import EndedTask, State
from celery_reliable.operations.views import Order, Wait, WaitsFor, Worker
from celery_reliable.operations.words import at, moment
from celery_reliable.orders import OrderKind

__all__ = ["Seen", "absent", "ended", "held_by", "waits_for_worker", "why"]

#: What the ledger says that a task waits for which waits for a worker that it names.
_WORKERS = "workers"
#: What a record waits for that an order has parked, before the order's id.
_ORDER = "order "
#: So many workers are named in a sentence.
_MOST_NAMED = 10


@dataclass(frozen=True)
class Seen:
    """What was seen of a task beside its record.

    Attributes:
        queue: that its message was sent to; empty where it cannot be told.
        eta_ms: of its message, if that lies in the future; 0 for none.
        object_name: what people call the object that it has or waits for; empty where it has none.
        holders: those that have that, or a place of it.
        holder_since_ms: since when the first of them.
        orders: those by which it may be kept from running, or its queue is.
        worker: of its attempt, or the one that is to stop one; None: the ledger knows none.
        before: how many messages are popped before its own; None: it was not among the first.
        depth: of its queue; None: nobody looked.
        is_in_queue: whether its message was seen in its queue, or may be there.
        fetched_by: the worker that was delivered its message.
        named: which workers may run it, and which get it first.
        workers: those that there are, of a task that waits for one.
    """

    queue: str = ""
    eta_ms: int = 0
    object_name: str = ""
    holders: tuple[Held, ...] = ()
    holder_since_ms: int = 0
    orders: tuple[Order, ...] = ()
    worker: Worker | None = None
    before: int | None = None
    depth: int | None = None
    is_in_queue: bool = True
    fetched_by: str = ""
    named: NamedWorkers = field(default_factory=NamedWorkers)
    workers: tuple[Worker, ...] = ()


def why(look: Look, seen: Seen, now_ms: int) -> WaitsFor:
    """Return why the task of *look* waits."""
    task = _Task(look, seen, now_ms)
    by_state = {
        State.RUNNING: task.running,
        State.DEAD: task.dead,
        State.WAITING: task.waiting,
        State.PARKED: task.parked,
        State.QUEUED: task.queued,
    }
    return by_state[look.record.state]()


def held_by(look: Look) -> Wait | None:
    """Return what holds a task back in the ledger, beside its time; None: nothing does."""
    if look.rate_key:
        return Wait.RATE
    if look.record.waiting_for == _WORKERS:
        return Wait.WORKER
    if look.record.waiting_for.startswith(_ORDER):
        return Wait.ORDER
    return Wait.OBJECT if look.record.in_line_of else None


def waits_for_worker(look: Look, seen: Seen) -> bool:
    """Whether a task waits in the ledger for a worker that may run it."""
    if look.record.state is not State.PARKED:
        return False
    # No pass may have looked at it yet.
    is_new = not look.record.waiting_for and bool(seen.named.only) and not seen.eta_ms
    return is_new or look.record.waiting_for == _WORKERS


class _Task:
    """A task, what was seen of it, and what can be said of it in each of its states."""

    def __init__(self, look: Look, seen: Seen, now_ms: int) -> None:
        self._look = look
        self._record = look.record
        self._seen = seen
        self._now_ms = now_ms
        self._due = moment(look.due_ms)
        self._queue = f"the queue {seen.queue!r}" if seen.queue else "its queue"

    def _ago(self, since_ms: int) -> str:
        """How long ago something was."""
        return span((self._now_ms - since_ms) / 1000)

    def _until(self, until_ms: int | None) -> str:
        """When something will be, and in how long that is."""
        left_seconds = ((until_ms or 0) - self._now_ms) / 1000
        return f"{at(until_ms)} ({f'in {span(left_seconds)}' if left_seconds > 0 else 'now'})"

    def _say(self, kind: Wait, sentence: str, **more: Any) -> WaitsFor:
        """Say it of a task that waits: since it was sent, until somebody looks at it again."""
        told = {"until": self._due, "queue": self._seen.queue, **more}
        return WaitsFor(kind, sentence, moment(self._record.since_ms), **told)

    def running(self) -> WaitsFor:
        """Say who runs it."""
        record, worker = self._record, self._seen.worker
        # A main process may claim for one of its pool's: which one runs it nobody has noted.
        is_main = worker is not None and worker.pid == record.pid
        where = "" if is_main else f" in process {record.pid}"
        said = (
            f"Attempt {record.attempt} runs on {nodename_of(record.owner)}{where}, since "
            f"{at(record.claimed_ms)} ({self._ago(record.claimed_ms)})."
        )
        if self._due:
            said += f" It has until {at(self._due)} (time_to_run_seconds)."
        if record.is_revoked:
            said += " It was revoked: if this attempt ends without an outcome, there is no other."
        if worker is not None and worker.state != "alive":
            said += (
                f" But that worker is {worker.state}: a pass of the sweeper takes the attempt "
                "from it, and the task goes back to its queue."
            )
        return WaitsFor(
            Wait.RUNNING,
            said,
            since=moment(record.claimed_ms),
            until=self._due,
            worker=record.owner,
            pid=record.pid,
        )

    def dead(self) -> WaitsFor:
        """Say why it was put aside."""
        look, record = self._look, self._record
        said = f"It is a dead letter since {at(record.since_ms)}: {look.reason}"
        said += f" ({look.exception})." if look.exception else "."
        if record.is_owed:
            said += " Celery is still to be told of it (its failure, link_error, its chord)."
        if record.stopping_on:
            said += f" {nodename_of(record.stopping_on)} is still to stop an attempt of it."
        said += " `dead-letters replay` runs it again, `dead-letters discard` forgets it."
        kind = Wait.OWED if record.is_owed else Wait.DEAD
        return WaitsFor(kind, said, since=moment(record.since_ms), worker=record.stopping_on)

    def waiting(self) -> WaitsFor:
        """Say for which end it waits: that of a canvas, or of what still runs of it."""
        record = self._record
        if record.is_called_off:
            return WaitsFor(
                Wait.CALLED_OFF,
                "It was called off (revoked, expired or discarded) and does not run again. "
                f"{nodename_of(record.stopping_on) or 'A worker'} is still to stop what runs of "
                "it.",
                worker=record.stopping_on,
            )
        known = f" Known members: {', '.join(record.members)}." if record.members else ""
        return WaitsFor(
            Wait.CANVAS,
            f"It replaced itself by a canvas, {self._ago(record.since_ms)} ago, and waits for "
            f"that to end: its id is published again by the canvas's last member.{known}",
            since=moment(record.since_ms),
        )

    def parked(self) -> WaitsFor:
        """Say for what it waits in the ledger, with no message on its way."""
        look, seen = self._look, self._seen
        if waits_for_worker(look, seen):
            return self._for_worker()
        held = held_by(look)
        if held is Wait.ORDER:
            return self._for_end_of_order()
        if held is Wait.OBJECT:
            return self._for_object()
        if held is Wait.RATE:
            kind = Wait.RATE
            said = (
                f"It waits for its moment under the rate of {look.rate_key}: at "
                f"{self._until(look.due_ms)} it is sent to {self._queue}, and no worker is held up "
                "until then."
            )
        else:
            kind, what = Wait.ETA, "for its ETA"
            if Stamp("", self._record.epoch).attempt:
                kind, what = Wait.RETRY, f"for its retry after attempt {self._record.attempt}"
            said = (
                f"It is parked in the ledger until {self._until(look.due_ms)}, {what}; then it is "
                f"sent to {self._queue}."
            )
        return self._say(kind, said)

    def _for_worker(self) -> WaitsFor:
        seen, only = self._seen, self._seen.named.only
        meant = ", ".join(map(repr, only)) or "that it names"
        alive = [one for one in seen.workers if one.state == "alive"]
        may = [one for one in alive if seen.named.means(one.nodename)]
        said = f"It may run on workers {meant} only (only_workers)"
        said += "." if may else ", and none of them is alive."
        if may:
            names = ", ".join(f"{one.nodename} ({one.condition})" for one in may[:_MOST_NAMED])
            said += (
                f" Of those there are {names}. What is drained takes nothing until `resume`; one "
                "without a queue of its own needs worker_direct, or the next pass."
            )
        if others := [one.nodename for one in alive if one not in may]:
            said += f" Alive, and not named: {', '.join(others[:_MOST_NAMED])}."
        said += " It is sent as soon as one starts; `move` names others."
        return self._say(Wait.WORKER, said, workers=only)

    def _for_end_of_order(self) -> WaitsFor:
        order_id = self._record.waiting_for.removeprefix(_ORDER)
        order = next((one for one in self._seen.orders if one.id == order_id), None)
        # Lists do not look who has given it; or it has ended, and a pass is about to send it.
        by = f" (order {order_id})" if order is None else f": {order.sentence}"
        return self._say(
            Wait.ORDER,
            f"An operator has struck it{by}. It is parked, and sent to {self._queue} when that "
            "ends.",
            until=None if order is None else order.until,
        )

    def _for_object(self) -> WaitsFor:
        """Say who has the object for which a task stands in line."""
        look, seen, record = self._look, self._seen, self._record
        held = seen.holders[0] if seen.holders else None
        said = f"It stands in line for the object {seen.object_name or record.in_line_of}"
        if seen.before is not None:
            said += f", with {seen.before} before it"
        if held is not None and held.kept_ms is not None:
            said += (
                f"; that is kept after the success of {held.task_id} (once_for_seconds), for "
                f"{span(held.kept_ms / 1000)} yet"
            )
        elif held is not None:
            said += f"; {' and '.join(one.task_id for one in seen.holders)} "
            said += "has it" if len(seen.holders) == 1 else "have it"
            said += f" since {at(seen.holder_since_ms)}" if seen.holder_since_ms else ""
        return WaitsFor(
            Wait.OBJECT,
            f"{said}. It goes on as soon as there is a place and its turn has come; it is looked "
            f"at again at {self._until(look.due_ms)}, at the latest.",
            since=moment(record.published_ms),
            until=moment(look.due_ms),
            queue=seen.queue,
            before=seen.before,
            object_key=record.in_line_of,
            holder=held.task_id if held is not None else "",
            holder_since=moment(seen.holder_since_ms),
        )

    def queued(self) -> WaitsFor:
        """Say what a queued task waits for."""
        look, record, seen = self._look, self._record, self._seen
        if record.stopping_on:
            return self._say(
                Wait.STOPPING,
                f"An attempt of it was taken from {nodename_of(record.stopping_on)} "
                f"({look.cause}), and the next one begins when that worker has stopped it or is "
                "declared dead.",
                worker=record.stopping_on,
            )
        if record.is_revoked:
            return self._say(
                Wait.CALLED_OFF,
                "It was revoked as it ran, and its attempt had no outcome: the next pass of the "
                "sweeper ends it.",
            )
        if look.has_to_wait:
            return self._say(
                Wait.ALONE,
                "It ran in workers that died, with others, and nobody knows which of them it was: "
                "it waits to be run by a worker that runs no other such task, and is sent to one "
                f"at {self._until(look.due_ms)}.",
            )
        again, lost = "", "It"
        if look.cause:
            again = f" Its last attempt was lost ({look.cause})."
            lost = f"It was lost ({look.cause}), and"
        if record.is_unsent:
            only = seen.named.only
            where = f"a worker of {', '.join(map(repr, only))}" if only else self._queue
            said = f"{lost} waits to be sent to {where} at {self._until(look.due_ms)}."
        elif seen.fetched_by or seen.is_in_queue:
            return self._sent_already(again)
        else:
            said = (
                f"Its message is neither in {self._queue} nor with a worker: a pass of the sweeper "
                f"looks at it at {self._until(look.due_ms)}, and sends it again.{again}"
            )
        return self._say(Wait.RESEND, said)

    def _sent_already(self, again: str) -> WaitsFor:
        """Say where its message is; *again*: how its last attempt was lost."""
        record, seen = self._record, self._seen
        more: dict[str, Any] = {"before": seen.before, "depth": seen.depth}
        paused = [one for one in seen.orders if one.kind is OrderKind.PAUSE]
        order = next((one for one in paused if seen.queue and one.names(seen.queue)), None)
        if seen.fetched_by:
            kind, more = Wait.FETCHED, {"worker": seen.fetched_by}
            said = (
                f"{nodename_of(seen.fetched_by)} has fetched it and not begun it: it waits for a "
                "free process there, unless it goes back to its queue before (GIVE_BACK_SECONDS)."
            )
        elif order is not None:
            kind, more = Wait.ORDER, {"until": order.until}
            said = f"It waits in {self._queue}, from which nobody takes: {order.sentence}."
        else:
            kind, since_ms = Wait.QUEUE, record.since_ms
            said = f"It waits in {self._queue} since {at(since_ms)} ({self._ago(since_ms)})"
            if seen.before is not None:
                said += f", with {seen.before} before it"
            elif seen.depth is not None:
                said += f", among {seen.depth} that wait there"
            said += "."
        return self._say(kind, said + again, **{"until": None, **more})


def ended(kept: EndedTask) -> WaitsFor:
    """Say how a task ended of which something was kept."""
    how = f"ended as {kept.outcome}" if kept.outcome else "ended"
    by = f", by {kept.by}" if kept.outcome == "DISCARDED" and kept.by else ""
    because = f" ({kept.by})" if kept.by and not by else ""
    where = f", by its attempt {kept.attempts} on {nodename_of(kept.owner)}" if kept.owner else ""
    when = f" {at(kept.ended_ms)}" if kept.ended_ms else ""
    return WaitsFor(
        Wait.ENDED,
        f"It {how}{because}{by}{where}{when}.",
        since=moment(kept.ended_ms),
        worker=kept.owner,
        pid=kept.pid,
    )


def absent(task_id: str) -> WaitsFor:
    """Say what it means that the ledger has no record of a task."""
    return WaitsFor(
        Wait.ABSENT,
        f"The ledger knows no task {task_id!r}, and the app's result backend tells nothing of it: "
        "it has ended and its result is not kept, or it was revoked, discarded or has expired, or "
        "nobody has published it under this id with base=ReliableTask. No attempt of it runs, and "
        "none will.",
    )
