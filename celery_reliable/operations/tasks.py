"""Any task that lives: its state, why it waits, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from celery_reliable.ledger import Look, death_of, group_of
from celery_reliable.message import Envelope, NamedWorkers
from celery_reliable.model import HistoryEntry, State
from celery_reliable.operations.filters import EVERYTHING, Filter
from celery_reliable.operations.happenings import Happenings
from celery_reliable.operations.letter_groups import LetterGroups
from celery_reliable.operations.messages import (
    envelope_of,
    eta_ms,
    message_view,
    queue_of,
    told_by,
)
from celery_reliable.operations.objects import since_ms
from celery_reliable.operations.operation import Cursor, Id, Limit, Param, Right
from celery_reliable.operations.pages import Page, Position
from celery_reliable.operations.part import Part
from celery_reliable.operations.views import Entry, Order, Task, TaskInFull, Wait
from celery_reliable.operations.waits import Seen, absent, ended, held_by, waits_for_worker, why
from celery_reliable.operations.walks import Kind, Walk
from celery_reliable.operations.words import moment, utc
from celery_reliable.operations.workers import Workers
from celery_reliable.recovery import stored_task

__all__ = ["Tasks"]

#: What the ledger refuses, as the log calls it and as the flight record does.
_REFUSALS = {"task_fenced": "fenced", "task_skipped": "skipped"}
_MOST_REFUSALS = 20
#: Messages looked at of those that are popped next, of each priority.
_LOOKED_AT = 50
#: Messages looked at of those that workers were delivered.
_MOST_DELIVERED = 2_000


class Tasks(Part):
    """The tasks of a ledger's namespace.  Raises what the ledger raises."""

    def get(
        self,
        id_: Id,
        *,
        arguments: Annotated[
            bool,
            Param(
                "Show the arguments and the whole message, unredacted.",
                option="--with-arguments",
                needs=Right.SEE_ARGUMENTS,
            ),
        ] = False,
    ) -> TaskInFull:
        """Show one task, whatever became of it: its state, why it waits, and what happened to it.

        Arguments are shown only on request, to those who may see them.  The text and the traceback
        of an exception are always shown.

        Raises kombu's errors, too: it looks at its queue and at what workers were delivered, as far
        as that is cheap.  A message deep in a long queue is only known to be in it.
        """
        view = self._get(id_, arguments)
        # What was refused changes no record, and so stands in none.
        found = Happenings(self._ledger).page(
            kinds=tuple(_REFUSALS), task=id_, limit=_MOST_REFUSALS
        )
        refused = [
            Entry(one.at, _REFUSALS[one.kind], int(one.about.get("attempt") or 0), one.sentence)
            for one in found
            if one.task_id == id_
        ]
        entries = sorted((*view.history, *refused), key=lambda one: one.at or utc(0))
        return replace(view, history=tuple(entries))

    def _get(self, task_id: str, with_arguments: bool) -> TaskInFull:
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
        record = again.record
        history = _history(record.published_ms, again.history)
        if record.state is State.RUNNING:
            begun_at = moment(record.claimed_ms)
            history.append(Entry(begun_at, "started", record.attempt, "", record.owner, record.pid))
        more: dict[str, Any] = message_view(record, with_arguments=with_arguments)
        if (letter := again.letter) is not None:
            death = death_of(letter)
            more["death"] = death if death.cause else None
            more["traceback"] = letter.traceback
        return TaskInFull(**_facts(again, seen, now_ms), history=tuple(history), **more)

    def _ended(self, task_id: str) -> TaskInFull:
        """Return what is kept of a task that has no record."""
        kept = self._ledger.ended_task(task_id) or stored_task(self._app, task_id)
        if kept is None:
            return TaskInFull(task_id=task_id, state="absent", why=absent(task_id))
        history = _history(kept.published_ms, kept.history)
        for what, ms, cause in (
            ("started", kept.claimed_ms, ""),
            ("ended", kept.ended_ms, kept.outcome or kept.by),
        ):
            if ms:
                history.append(Entry(moment(ms), what, kept.attempts, cause, kept.owner, kept.pid))
        return TaskInFull(
            task_id=task_id,
            name=kept.name,
            state="ended",
            why=ended(kept),
            attempts=kept.attempts,
            losses=kept.losses,
            worker=kept.owner,
            published_at=moment(kept.published_ms),
            outcome=kept.outcome,
            history=tuple(history),
        )

    def page(
        self,
        filter_: Filter = EVERYTHING,
        *,
        state: Annotated[Kind | None, Param("The state of the task.")] = None,
        group: Annotated[
            str, Param("The dead letters of this group (its id).", max_length=1000)
        ] = "",
        is_latest_first: bool = False,
        limit: Limit = 50,
        cursor: Cursor = "",
        look_seconds: float = 0.0,
    ) -> Page[Task]:
        """List tasks with what each waits for: those that run, then those that wait.

        Dead letters are listed with the state dead, the oldest first.

        Args:
            filter_: only what fits.
            state: None: all but dead letters.
            group: of dead letters.
            is_latest_first: of dead letters.
            limit: at most so many.
            cursor: where a page before has ended.
            look_seconds: look for so long for what fits; 0: at a thousand.

        Raises UnknownGroup, and BadParameter for a cursor that is none.  Where messages are, who
        has an object and which workers live is not looked at.
        """
        groups, known = [group] if group else [], LetterGroups(self._app, self._ledger)
        if group:
            known.get(group)
        elif state is Kind.DEAD and (fitting := known.fitting(filter_)) is not None:
            if not fitting:
                return Page((), "", 0)
            groups = fitting
        now_ms = self._ledger.numbers().now_ms
        orders = self._orders(now_ms)
        walk = Walk(
            self._app,
            self._ledger,
            filter_,
            now_ms,
            kind=state,
            groups=groups,
            is_latest_first=is_latest_first,
            place=Position.of(cursor),
            look_seconds=look_seconds,
        )
        found: list[Task] = []
        for look in walk:
            found.append(Task(**_facts(look, self._told(look, orders, now_ms), now_ms)))
            if len(found) >= limit or walk.is_full:
                break
        return Page(tuple(found), walk.cursor, walk.looked_at)

    def _orders(self, now_ms: int) -> tuple[Order, ...]:
        return tuple(map(Order.of, self._ledger.orders.read().in_force(now_ms)))

    def _told(self, look: Look, orders: tuple[Order, ...], now_ms: int) -> Seen:
        """Return what the message of a task tells, with the orders that may keep it."""
        envelope = envelope_of(look.record)
        if envelope is None:
            return Seen(orders=orders)
        return Seen(
            orders=orders,
            queue=queue_of(envelope),
            object_name=self._name(look.record, look.object_key or look.record.in_line_of),
            eta_ms=eta_ms(envelope, now_ms),
            named=NamedWorkers.of(envelope.headers) or NamedWorkers(),
        )

    def _seen(self, look: Look, now_ms: int) -> Seen:
        seen = self._told(look, self._orders(now_ms), now_ms)
        record, workers = look.record, Workers(self._app, self._ledger, self._broker)
        if record.state is State.RUNNING:
            return replace(seen, worker=workers.get(record.owner))
        if record.state not in (State.QUEUED, State.PARKED):
            return seen
        if waits_for_worker(look, seen):
            return replace(seen, workers=tuple(workers.all()))
        held = held_by(look)
        if held is Wait.ORDER:
            return seen
        if held is Wait.OBJECT:
            return self._with_holder(look, seen)
        envelope = envelope_of(record)
        if record.state is State.QUEUED and not record.is_unsent and envelope is not None:
            return self._whereabouts(envelope, record.task_id, seen)
        return seen

    def _whereabouts(self, envelope: Envelope, task_id: str, seen: Seen) -> Seen:
        """Return *seen* with where the message is, as far as the broker tells."""
        queue = self._broker.reached(envelope.exchange, envelope.routing_key)[0]
        seen = replace(seen, queue=queue)
        if not self._broker.is_redis:
            declared = self._broker.declared_all([queue])[queue]
            return seen if declared is None else replace(seen, depth=declared[0])
        # First the queue: who fetches it meanwhile has it when workers are looked at.
        steps = self._broker.steps(queue, _LOOKED_AT)
        seen = replace(seen, depth=sum(step.depth for step in steps))
        before = 0
        for step in steps:
            if task_id in step.head:
                return replace(seen, before=before + step.head.index(task_id))
            before += step.depth
        left = _MOST_DELIVERED
        for lease in self._ledger.workers.leases():
            if lease.unacked and left > 0:
                entries = self._broker.unacked(lease.unacked).heads(left)
                left -= len(entries)
                if any(entry.task_id == task_id for entry in entries):
                    return replace(seen, fetched_by=lease.worker)
        # As far as all was looked at, absence is known; what was not looked at may have it.
        is_in_queue = left <= 0 or any(step.depth > _LOOKED_AT for step in steps)
        return replace(seen, is_in_queue=is_in_queue)

    def _with_holder(self, look: Look, seen: Seen) -> Seen:
        record = look.record
        key = record.in_line_of
        holders, before = self._ledger.line_of(key, record.places, record.task_id)
        since = 0
        if holders and holders[0].kept_ms is None:
            (other,) = self._ledger.look_all([holders[0].task_id])
            since = since_ms(holders[0], other)
        return replace(
            seen,
            object_name=self._name(record, key),
            holders=holders,
            holder_since_ms=since,
            before=before,
        )


def _history(published_ms: int, noted: Iterable[HistoryEntry]) -> list[Entry]:
    """Return what happened to a task, with the beginning of each attempt of which that is known."""
    found = [Entry(moment(published_ms), "published")] if published_ms else []
    for one in noted:
        end = Entry(moment(one.at_ms), one.what, one.attempt, one.cause, one.owner, one.pid)
        if one.claimed_ms:
            found.append(replace(end, at=moment(one.claimed_ms), what="started", cause=""))
        found.append(end)
    return found


def _facts(look: Look, seen: Seen, now_ms: int) -> dict[str, Any]:
    """Return what a list has of a task."""
    record, named, letter = look.record, seen.named, look.letter
    return {
        "task_id": record.task_id,
        "name": record.name,
        "state": record.state.value,
        "why": why(look, seen, now_ms),
        "attempts": record.attempt,
        "losses": record.losses,
        "cause": str(death_of(letter)) if letter else look.cause,
        "queue": seen.queue,
        "object_key": look.object_key,
        "object_name": seen.object_name,
        "worker": record.owner,
        "only_workers": named.only,
        "prefer_workers": named.prefer,
        "run": named.run,
        "published_at": moment(record.published_ms),
        "reason": letter.reason.value if letter else "",
        "exception": letter.exception if letter else "",
        "group": group_of(letter).id if letter else "",
        **told_by(look.record),
    }
