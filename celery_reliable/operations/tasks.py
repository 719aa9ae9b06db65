"""Any task that lives: its state, why it waits, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from celery import Celery

from celery_reliable.ledger import Held, Ledger, Look
from celery_reliable.message import NamedWorkers
from celery_reliable.model import HistoryEntry, Record, State
from celery_reliable.operations import shapes
from celery_reliable.operations.filters import Filter, Subject
from celery_reliable.operations.happenings import Happenings
from celery_reliable.operations.messages import (
    envelope_of,
    eta_ms,
    object_name,
    object_of,
    own_call_of,
    publisher_of,
)
from celery_reliable.operations.objects import since_ms
from celery_reliable.operations.pages import Page
from celery_reliable.operations.times import iso
from celery_reliable.operations.views import arguments_view
from celery_reliable.operations.waits import Seen, Why, absent, ended, waits_for_worker, why
from celery_reliable.operations.walks import Kind, Walk
from celery_reliable.operations.whereabouts import Whereabouts
from celery_reliable.operations.workers import Workers
from celery_reliable.orders import Order
from celery_reliable.recovery import MOST_BYTES, BrokerView, stored_task

__all__ = ["TaskView", "Tasks"]

#: How often a task has waited for its object: a header of its message.
_WAITS = "reliable_waits"
#: What the ledger refuses, as the log calls it and as the flight record does.
_REFUSALS = {"task_fenced": "fenced", "task_skipped": "skipped"}
_MOST_REFUSALS = 20
#: Messages read at a time, and in one page.
_MESSAGES_AT_ONCE = 100
_MOST_BYTES_OF_A_PAGE = 8 * MOST_BYTES


@dataclass(frozen=True)
class TaskView:
    """One task.

    Attributes:
        state: "parked", "queued", "running", "waiting" or "dead", as the ledger's README has them;
            "ended" for a task that was kept when it ended, "absent" for what nobody knows.
        why: why it waits, or what becomes of it.
        attempts: how many have begun.
        losses: how many were lost and are counted.
        cause: of the last loss, for people.
        queue: that its message is for; empty where it cannot be told.
        object_key: the object that it has, or had when its lock was last looked at.
        object_name: what people call that, or what it waits for (`messages.object_name`).
        worker: that runs it.
        only_workers: patterns of the workers that may run it; none: any.
        prefer_workers: patterns of those that get it first.
        call: what its call says in place of the task's own options, but for the workers.
        priority: that its message has.
        run: the run (``task.run_on``) of which it is a member; empty for none.
        published_ms: when it was published first.
        outcome: of one that has ended: a state of Celery's, "DISCARDED" (by an operator) or
            "TRIMMED" (a dead letter too many, or too old); empty where unknown.
        publisher: who published it: Celery's ``origin``, process and host, and in place of which
            dead letter; empty where unknown.
        history: what happened to it, the oldest first; empty in lists, and while nothing has.
            Refusals ("fenced", "skipped") are of what was noted lately, and may be missing.
    """

    task_id: str
    state: str
    why: Why
    name: str = ""
    attempts: int = 0
    losses: int = 0
    cause: str = ""
    queue: str = ""
    object_key: str = ""
    object_name: str = ""
    worker: str = ""
    only_workers: tuple[str, ...] = ()
    prefer_workers: tuple[str, ...] = ()
    call: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    run: str = ""
    published_ms: int = 0
    reason: str = ""
    exception: str = ""
    outcome: str = ""
    publisher: str = ""
    history: tuple[HistoryEntry, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the ledger has a record of it."""
        return self.state not in ("absent", "ended")

    def as_dict(self) -> shapes.TaskInFull:
        """The same as plain JSON values."""
        return {
            **self.short_view(),
            "history": [
                {
                    "at": iso(entry.at_ms),
                    "what": entry.what,
                    "attempt": entry.attempt,
                    "cause": entry.cause,
                    "worker": entry.owner,
                    "pid": entry.pid,
                    "claimed_at": iso(entry.claimed_ms),
                }
                for entry in self.history
            ],
        }

    def short_view(self) -> shapes.Task:
        """The same without its history."""
        return {
            "task_id": self.task_id,
            "name": self.name,
            "state": self.state,
            "why": self.why.as_dict(),
            "attempts": self.attempts,
            "losses": self.losses,
            "cause": self.cause,
            "queue": self.queue,
            "object_key": self.object_key,
            "object_name": self.object_name,
            "worker": self.worker,
            "only_workers": [*self.only_workers],
            "prefer_workers": [*self.prefer_workers],
            "call": {**self.call},
            "priority": self.priority,
            "run": self.run,
            "published_at": iso(self.published_ms),
            "reason": self.reason,
            "exception": self.exception,
            "outcome": self.outcome,
            "publisher": self.publisher,
        }


class Tasks:
    """The tasks of a ledger's namespace.  Raises what the ledger raises."""

    def __init__(
        self, app: Celery, ledger: Ledger, broker: BrokerView, *, sees_arguments: bool = False
    ) -> None:
        self._app = app
        self._name_of = partial(object_name, app, sees_arguments=sees_arguments)
        self._ledger = ledger
        self._broker = broker
        self._workers = Workers(ledger, broker)

    def get(self, task_id: str) -> TaskView:
        """Return one task, whatever became of it: also one that nobody knows.

        Looks at its queue and at what workers were delivered, as far as that is cheap: a message
        deep in a long queue is only known to be in it.  Raises kombu's errors, too.
        """
        return self._with_refusals(self._get(task_id))

    def _get(self, task_id: str) -> TaskView:
        look, now_ms = self._ledger.look(task_id)
        if look is None:
            return self._ended(task_id)
        seen = self._seen(look, now_ms)
        again, now_ms = self._ledger.look(task_id)
        if again is None:
            return self._ended(task_id)
        if (again.record.state, again.record.token) != (look.record.state, look.record.token):
            # It went on while its message was looked for.
            seen = self._seen(again, now_ms)
        return _view(again, seen, now_ms, history=again.history)

    def _ended(self, task_id: str) -> TaskView:
        """Return what is kept of a task that has no record."""
        kept = self._ledger.ended_task(task_id) or stored_task(self._app, task_id)
        if kept is None:
            return TaskView(task_id, "absent", absent(task_id))
        return TaskView(
            task_id,
            "ended",
            ended(kept),
            name=kept.name,
            attempts=kept.attempts,
            losses=kept.losses,
            worker=kept.owner,
            published_ms=kept.published_ms,
            outcome=kept.outcome,
            history=kept.history,
        )

    def _with_refusals(self, view: TaskView) -> TaskView:
        """Return it with what was refused, which changes no record and so stands in none."""
        found = Happenings(self._ledger).page(
            kinds=tuple(_REFUSALS), task=view.task_id, limit=_MOST_REFUSALS
        )
        refused = [
            HistoryEntry(
                at_ms=one.at_ms,
                what=_REFUSALS[one.kind],
                attempt=int(one.about.get("attempt") or 0),
                cause=one.sentence,
                owner="",
            )
            for one in found.items
            if one.task_id == view.task_id
        ]
        entries = sorted((*view.history, *refused), key=lambda one: one.at_ms)
        return replace(view, history=tuple(entries))

    def arguments(self, task_id: str) -> dict[str, Any] | None:
        """Return the arguments of a task that lives or is dead, unredacted: for whoever may see
        them.  None: there is no such task (any more).
        """
        record = self._ledger.find(task_id)
        return None if record is None else arguments_view(record)

    def page(
        self,
        wanted: Filter | None = None,
        *,
        kind: Kind | None = None,
        cursor: str = "",
        limit: int = 100,
    ) -> Page[TaskView]:
        """Return at most *limit* tasks of a *kind* (None: all but dead letters) that fit: those
        that run, and then the others, those first at which somebody must look first; dead letters
        the oldest first.

        Where their messages are, who has an object and which workers live is not looked at.
        Raises BadCursor, and BadFilter for what only dead letters have.
        """
        wanted = wanted or Filter()
        if kind not in (Kind.DEAD, Kind.OWED):
            wanted.check("reason", "exception", why="only dead letters have one (state dead).")
        now_ms = self._ledger.numbers().now_ms
        walk = Walk(self._ledger, kind, cursor)
        found: list[TaskView] = []
        orders = self._ledger.orders.read().in_force(now_ms)
        last, n_bytes = "", 0
        for look, place in self._with_messages(
            self._fitting(walk, wanted, now_ms), min(limit, _MESSAGES_AT_ONCE)
        ):
            last = place
            n_bytes += len(look.record.message)
            view = _view(look, self._told(look, orders, now_ms), now_ms)
            subject = _subject(view)
            if wanted.object_id is not None:
                subject = replace(subject, object_id=self._object_of(look.record))
            if wanted.matches(subject, now_ms):
                found.append(view)
            if len(found) >= limit or n_bytes > _MOST_BYTES_OF_A_PAGE:
                break
        else:
            last = walk.cursor
        return Page(tuple(found), last, walk.looked_at)

    def _fitting(self, walk: Walk, wanted: Filter, now_ms: int) -> Iterator[tuple[Look, str]]:
        """Yield what fits as far as records tell without their messages, with the place behind."""
        light = replace(wanted, queue=None, object_id=None)
        for look in walk:
            view = _view(look, Seen(), now_ms)
            if light.matches(_subject(view), now_ms):
                yield look, walk.cursor

    def _with_messages(
        self, looks: Iterator[tuple[Look, str]], at_once: int
    ) -> Iterator[tuple[Look, str]]:
        """Yield the same with their messages, of which few are in memory at a time."""
        while chunk := list(islice(looks, at_once)):
            ids = [look.record.task_id for look, _ in chunk]
            messages = self._ledger.find_in_groups(ids, most_bytes=MOST_BYTES)
            for (look, place), one in zip(chunk, messages, strict=True):
                record = one.record if one.is_readable else None
                yield (look if record is None else replace(look, record=record)), place

    def _told(self, look: Look, orders: tuple[Order, ...], now_ms: int) -> Seen:
        """Return what the message of a task tells, with the orders that may keep it."""
        envelope = envelope_of(look.record)
        if envelope is None:
            return Seen(orders=orders)
        return Seen(
            orders=orders,
            # Most messages name their queue; only the broker knows where an exchange leads to.
            queue=envelope.routing_key or envelope.exchange,
            object_name=self._name_of(look.record, look.object_key or look.waiting_for),
            publisher=publisher_of(envelope),
            eta_ms=eta_ms(envelope, now_ms),
            waits_for_object=_number(envelope.headers.get(_WAITS)) > 0,
            named=NamedWorkers.of(envelope.headers),
            call=own_call_of(envelope),
            priority=_number(envelope.properties.get("priority")),
        )

    def _seen(self, look: Look, now_ms: int) -> Seen:
        seen = self._told(look, self._ledger.orders.read().in_force(now_ms), now_ms)
        record = look.record
        if record.state is State.RUNNING:
            return replace(seen, worker=self._workers.get(record.owner))
        if record.state not in (State.QUEUED, State.PARKED):
            return seen
        if waits_for_worker(look, seen):
            return replace(seen, workers=tuple(self._workers.all(with_broker=False)))
        if look.waiting_for.startswith("order "):
            return seen
        if (look.waiting_for and not look.rate_key) or seen.waits_for_object:
            return self._with_holder(look, seen)
        envelope = envelope_of(record)
        if record.state is State.QUEUED and not record.is_unsent and envelope is not None:
            return Whereabouts(self._ledger, self._broker).of(envelope, record.task_id, seen)
        return seen

    def _with_holder(self, look: Look, seen: Seen) -> Seen:
        key = look.waiting_for or self._object_of(look.record)
        if not key:
            return seen
        record = look.record
        seen = replace(seen, object_name=self._name_of(record, key))
        if record.in_line_of:
            holders, before = self._ledger.line_of(key, record.places, record.task_id)
            return replace(
                seen,
                object_key=key,
                holder=next(iter(holders), None),
                holders=tuple(one.task_id for one in holders),
                before=before,
            )
        (held,) = self._ledger.holders([key])
        return replace(seen, object_key=key, holder=held, holder_since_ms=self._since_ms(held))

    def _object_of(self, record: Record) -> str:
        envelope = envelope_of(record)
        return "" if envelope is None else object_of(self._app, envelope)

    def _since_ms(self, held: Held | None) -> int:
        if held is None or held.kept_ms is not None:
            return 0
        (look,) = self._ledger.look_all([held.task_id])
        return since_ms(held, look)


def _view(look: Look, seen: Seen, now_ms: int, history: Iterable[HistoryEntry] = ()) -> TaskView:
    record, named = look.record, seen.named or NamedWorkers()
    return TaskView(
        task_id=record.task_id,
        state=record.state.value,
        why=why(look, seen, now_ms),
        name=record.name,
        attempts=record.attempt,
        losses=record.losses,
        cause=record.cause,
        queue=seen.queue,
        publisher=seen.publisher,
        object_key=look.object_key,
        object_name=seen.object_name,
        worker=record.owner,
        only_workers=named.only,
        prefer_workers=named.prefer,
        call=seen.call,
        priority=seen.priority,
        run=named.run,
        published_ms=record.published_ms,
        reason=look.reason if record.state is State.DEAD else "",
        exception=look.exception if record.state is State.DEAD else "",
        history=tuple(history),
    )


def _subject(view: TaskView) -> Subject:
    return Subject(
        task_id=view.task_id,
        name=view.name,
        queue=view.queue,
        reason=view.reason,
        exception=view.exception,
        cause=view.cause,
        object_id=view.object_key,
        workers=(view.worker,) if view.worker else (),
        at_ms=view.why.since_ms if view.state == "dead" else view.published_ms,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
