"""Why a task waits, or what becomes of it just now: one plain sentence, and the same as data."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from celery_reliable.clock import at, moment, span
from celery_reliable.leases import nodename_of
from celery_reliable.ledger import Held, Look
from celery_reliable.message import NamedWorkers, Stamp
from celery_reliable.model import EndedTask, State
from celery_reliable.operations.messages import envelope_of, has_eta, queue_of, told_by
from celery_reliable.operations.objects import since_ms
from celery_reliable.operations.operation import Part
from celery_reliable.operations.views import Order, Wait, WaitsFor, Worker
from celery_reliable.operations.workers import Workers
from celery_reliable.orders import Orders

__all__ = ["Situation", "absent", "ended", "held_by"]

#: What the ledger says that a task waits for which waits for a worker that it names.
_WORKERS = "workers"
#: What a record waits for that an order holds back, before the order's id.
_ORDER = "order "
#: So many workers are named in a sentence.
_MOST_NAMED = 10
#: Messages looked at of those that are popped next, of each priority.
_LOOKED_AT = 50
#: Messages looked at of those that workers were delivered.
_MOST_DELIVERED = 2_000


def held_by(look: Look) -> Wait | None:
    """Return what holds a task back in the ledger, beside its time; None: nothing does."""
    if look.rate_key:
        return Wait.RATE
    if look.record.waiting_for == _WORKERS:
        return Wait.WORKER
    if look.record.waiting_for.startswith(_ORDER):
        return Wait.ORDER
    return Wait.OBJECT if look.record.in_line_of else None


class Situation:
    """A task as it is now: what its message tells, why it waits, and what a list has of it.

    Args:
        part: of the desk; by its connections is asked what the record does not tell.
        look: the task.
        orders: as they were read.
        now_ms: the ledger's time.
        is_alone: it is the only task that is asked for.  Of a task in a list nobody looks for its
            message, for the holders of its object and for workers.
    """

    def __init__(
        self, part: Part, look: Look, orders: Orders, now_ms: int, *, is_alone: bool
    ) -> None:
        self._part, self._look, self._record = part, look, look.record
        self._orders, self._now_ms, self._is_alone = orders, now_ms, is_alone
        self._due = moment(look.due_ms)
        #: None: nobody can read it.
        self._message = envelope_of(look.record)
        headers = {} if self._message is None else self._message.headers
        self._named = NamedWorkers.of(headers) or NamedWorkers()
        self._queue_name = queue_of(self._message)

    def facts(self) -> dict[str, Any]:
        """Return what a list has of it: fields of `Task`."""
        look, record, letter = self._look, self._record, self._look.letter
        by_state = {
            State.RUNNING: self._running,
            State.DEAD: self._dead,
            State.WAITING: self._waiting,
            State.QUEUED: self._queued,
        }
        return {
            "task_id": record.task_id,
            "name": record.name,
            "state": record.state.value,
            "why": by_state[record.state](),
            "attempts": record.attempt,
            "losses": record.losses,
            "cause": letter.group.cause if letter else look.cause,
            "queue": self._queue_name,
            "object_key": look.object_key,
            "object_name": self._object_name,
            "worker": record.owner,
            "only_workers": self._named.only,
            "prefer_workers": self._named.prefer,
            "run": self._named.run,
            "published_at": moment(record.published_ms),
            "reason": letter.reason.value if letter else "",
            "exception": letter.exception if letter else "",
            "group": letter.group.id if letter else "",
            **({} if self._message is None else told_by(self._message)),
        }

    @property
    def _object_name(self) -> str:
        """What people call the object that it has or waits for; empty where it has none."""
        key = self._look.object_key or self._record.in_line_of
        return self._part.object_name(self._record, key) if self._message else ""

    @cached_property
    def _stopping_on(self) -> str:
        """The worker that is still to stop an attempt of it; empty where none is, or it is dead."""
        found = self._record.stopping_on
        workers = self._workers() if found else []
        lives = found in {one.worker for one in workers if one.state != "dead"}
        return found if lives or not self._is_alone else ""

    @property
    def _queue(self) -> str:
        return f"the queue {self._queue_name!r}" if self._queue_name else "its queue"

    def _ago(self, since_ms: int) -> str:
        """How long ago something was."""
        return span((self._now_ms - since_ms) / 1000)

    def _until(self, until_ms: int | None) -> str:
        """When something will be, and in how long that is."""
        left_seconds = ((until_ms or 0) - self._now_ms) / 1000
        return f"{at(until_ms)} ({f'in {span(left_seconds)}' if left_seconds > 0 else 'now'})"

    def _say(self, kind: Wait, sentence: str, **more: Any) -> WaitsFor:
        """Say it of a task that waits: since it was sent, until somebody looks at it again."""
        since = moment(self._record.since_ms)
        told = {"since": since, "until": self._due, "queue": self._queue_name, **more}
        return WaitsFor(kind, sentence, **told)

    def _running(self) -> WaitsFor:
        """Say who runs it."""
        record = self._record
        worker = next((one for one in self._workers() if one.worker == record.owner), None)
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

    def _dead(self) -> WaitsFor:
        """Say why it was put aside."""
        look, record = self._look, self._record
        said = f"It is a dead letter since {at(record.since_ms)}: {look.reason}"
        said += f" ({look.exception})." if look.exception else "."
        if record.is_owed:
            said += " Celery is still to be told of it (its failure, link_error, its chord)."
        if self._stopping_on:
            said += f" {nodename_of(self._stopping_on)} is still to stop an attempt of it."
        said += " `dead-letters replay` runs it again, `dead-letters discard` forgets it."
        kind = Wait.OWED if record.is_owed else Wait.DEAD
        return WaitsFor(kind, said, since=moment(record.since_ms), worker=self._stopping_on)

    def _for_end(self) -> WaitsFor:
        """Say for which end it waits: that of a canvas, or of what still runs of it."""
        record = self._record
        if record.is_called_off:
            return WaitsFor(
                Wait.CALLED_OFF,
                "It was called off (revoked, expired or discarded) and does not run again. "
                f"{nodename_of(self._stopping_on) or 'A worker'} is still to stop its attempt.",
                worker=self._stopping_on,
            )
        known = f" Known members: {', '.join(record.members)}." if record.members else ""
        return WaitsFor(
            Wait.CANVAS,
            f"It replaced itself by a canvas, {self._ago(record.since_ms)} ago, and waits for "
            f"that to end: its id is published again by the canvas's last member.{known}",
            since=moment(record.since_ms),
        )

    def _waiting(self) -> WaitsFor:
        """Say for what it waits in the ledger, with no message on its way."""
        look, held = self._look, held_by(self._look)
        if self._record.is_called_off or self._record.is_replaced:
            return self._for_end()
        if self._record.waiting_for == "alone":
            return self._say(
                Wait.ALONE,
                "It ran in workers that died, as other tasks did, and may have killed them. At "
                f"{self._until(look.due_ms)} it is sent, to run beside no other suspect.",
            )
        # No pass may have looked at it yet.
        is_new = self._record.waiting_for == "time" and bool(self._named.only)
        if held is Wait.WORKER or (is_new and not has_eta(self._message)):
            return self._for_worker()
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
                f"It waits in the ledger until {self._until(look.due_ms)}, {what}; then it is "
                f"sent to {self._queue}."
            )
        return self._say(kind, said)

    def _for_worker(self) -> WaitsFor:
        only = self._named.only
        meant = ", ".join(map(repr, only)) or "that it names"
        alive = [one for one in self._workers() if one.state == "alive"]
        may = [one for one in alive if self._named.means(one.nodename)]
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
        said += " It is sent as soon as one starts."
        return self._say(Wait.WORKER, said, workers=only)

    def _for_end_of_order(self) -> WaitsFor:
        order_id = self._record.waiting_for.removeprefix(_ORDER)
        in_force = self._orders.in_force(self._now_ms)
        order = next((Order.of(one) for one in in_force if one.id == order_id), None)
        # Lists do not look who has given it; or it has ended, and a pass is about to send it.
        by = f" (order {order_id})" if order is None else f": {order.sentence}"
        return self._say(
            Wait.ORDER,
            f"An operator has struck it{by}. It waits, and is sent to {self._queue} when that "
            "ends.",
            until=None if order is None else order.until,
        )

    def _for_object(self) -> WaitsFor:
        """Say who has the object for which a task stands in line."""
        look, record, ledger = self._look, self._record, self._part.ledger
        holders: tuple[Held, ...] = ()
        before, since = None, 0
        if self._is_alone:
            holders, before = ledger.line_of(record.in_line_of, record.places, record.task_id)
        held = holders[0] if holders else None
        said = f"It stands in line for the object {self._object_name or record.in_line_of}"
        if before is not None:
            said += f", with {before} before it"
        if held is not None and held.kept_ms is not None:
            said += (
                f"; that is kept after the success of {held.task_id} (once_for_seconds), for "
                f"{span(held.kept_ms / 1000)} yet"
            )
        elif held is not None:
            since = since_ms(held, ledger.look_all([held.task_id])[0])
            said += f"; {' and '.join(one.task_id for one in holders)} "
            said += "has it" if len(holders) == 1 else "have it"
            said += f" since {at(since)}" if since else ""
        return self._say(
            Wait.OBJECT,
            f"{said}. It goes on when a place is free and its turn has come; a pass looks at it at "
            f"{self._until(look.due_ms)}.",
            since=moment(record.published_ms),
            before=before,
            object_key=record.in_line_of,
            holder=held.task_id if held is not None else "",
            holder_since=moment(since),
        )

    def _queued(self) -> WaitsFor:
        """Say what a queued task waits for."""
        look, record = self._look, self._record
        if stopping_on := self._stopping_on:
            return self._say(
                Wait.STOPPING,
                f"An attempt was taken from {nodename_of(stopping_on)} ({look.cause}). The next "
                "one begins when that worker has stopped it or is declared dead.",
                worker=stopping_on,
            )
        if record.is_revoked:
            return self._say(
                Wait.CALLED_OFF,
                "It was revoked as it ran, and its attempt had no outcome: the next pass of the "
                "sweeper ends it.",
            )
        again, lost = "", "It"
        if look.cause:
            again = f" Its last attempt was lost ({look.cause})."
            lost = f"It was lost ({look.cause}), and"
        if not record.is_unsent:
            return self._sent_already(again)
        only = self._named.only
        where = f"a worker of {', '.join(map(repr, only))}" if only else self._queue
        said = f"{lost} waits to be sent to {where} at {self._until(look.due_ms)}."
        return self._say(Wait.RESEND, said)

    def _sent_already(self, again: str) -> WaitsFor:
        """Say where its message is; *again*: how its last attempt was lost."""
        before, depth, fetched_by, is_in_queue = self._whereabouts()
        more: dict[str, Any] = {"before": before, "depth": depth}
        paused = self._orders.of_queue(self._queue_name, "", self._now_ms)
        if fetched_by:
            kind, more = Wait.FETCHED, {"worker": fetched_by}
            said = (
                f"{nodename_of(fetched_by)} has fetched it and not begun it: it waits for a free "
                "process there."
            )
        elif not is_in_queue:
            return self._say(
                Wait.RESEND,
                f"Its message is neither in {self._queue} nor with a worker: a pass of the sweeper "
                f"sends it again at {self._until(self._look.due_ms)}.{again}",
            )
        elif paused is not None:
            order = Order.of(paused)
            kind, more = Wait.ORDER, {"until": order.until}
            said = f"It waits in {self._queue}, from which nobody takes: {order.sentence}."
        else:
            kind, since = Wait.QUEUE, self._record.since_ms
            said = f"It waits in {self._queue} since {at(since)} ({self._ago(since)})"
            if before is not None:
                said += f", with {before} before it"
            elif depth is not None:
                said += f", among {depth} that wait there"
            said += "."
        return self._say(kind, said + again, **{"until": None, **more})

    def _workers(self) -> list[Worker]:
        """Return all workers, of a task that is alone; of another none."""
        part = self._part
        return Workers(part.app, part.ledger, part.broker).all() if self._is_alone else []

    def _whereabouts(self) -> tuple[int | None, int | None, str, bool]:
        """Look for its message, as far as the broker tells.

        Returns how many messages are popped before it (None: it was not among the first), how many
        wait in its queue (None: nobody looked), the worker that was delivered it, and whether it
        was seen in its queue, or may be there.
        """
        broker, task_id, message = self._part.broker, self._record.task_id, self._message
        if message is None or not self._is_alone:
            return None, None, "", True
        self._queue_name = queue = broker.reached(message.exchange, message.routing_key)[0]
        if not broker.is_redis:
            declared = broker.declared_all([queue])[queue]
            return None, declared[0] if declared else None, "", True
        # First the queue: who fetches it meanwhile has it when workers are looked at.
        steps = broker.steps(queue, _LOOKED_AT)
        before, depth = 0, sum(step.depth for step in steps)
        for step in steps:
            if task_id in step.head:
                return before + step.head.index(task_id), depth, "", True
            before += step.depth
        left = _MOST_DELIVERED
        for lease in self._part.ledger.workers.leases():
            if lease.unacked and left > 0:
                entries = broker.unacked(lease.unacked).heads(left)
                left -= len(entries)
                if any(entry.task_id == task_id for entry in entries):
                    return None, depth, lease.worker, False
        # As far as all was looked at, absence is known; what was not looked at may have it.
        may_be = left <= 0 or any(step.depth > _LOOKED_AT for step in steps)
        return None, depth, "", may_be


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
