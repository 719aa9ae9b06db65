"""Any task that lives: its state, why it waits, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from celery_reliable.ledger import Look, death_of
from celery_reliable.model import HistoryEntry, State
from celery_reliable.operations.filters import EVERYTHING, Filter
from celery_reliable.operations.happenings import Happenings
from celery_reliable.operations.letter_groups import LetterGroups
from celery_reliable.operations.messages import (
    message_view,
)
from celery_reliable.operations.operation import Cursor, Id, Limit, Param, Right
from celery_reliable.operations.pages import Page, Position
from celery_reliable.operations.part import Part
from celery_reliable.operations.views import Entry, Task, TaskInFull
from celery_reliable.operations.waits import Situation, absent, ended
from celery_reliable.operations.walks import Kind, Walk
from celery_reliable.operations.words import moment, utc
from celery_reliable.recovery import stored_task

__all__ = ["Tasks"]

#: What the ledger refuses, as the log calls it and as the flight record does.
_REFUSALS = {"task_fenced": "fenced", "task_skipped": "skipped"}
_MOST_REFUSALS = 20


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
        found = Happenings(self.ledger).page(kinds=tuple(_REFUSALS), task=id_, limit=_MOST_REFUSALS)
        refused = [
            Entry(one.at, _REFUSALS[one.kind], int(one.about.get("attempt") or 0), one.sentence)
            for one in found
            if one.task_id == id_
        ]
        entries = sorted((*view.history, *refused), key=lambda one: one.at or utc(0))
        return replace(view, history=tuple(entries))

    def _get(self, task_id: str, with_arguments: bool) -> TaskInFull:
        look, now_ms = self.ledger.look(task_id)
        if look is None:
            return self._ended(task_id)
        facts = self._facts(look, now_ms)
        again, now_ms = self.ledger.look(task_id)
        if again is None:
            return self._ended(task_id)
        if (again.record.state, again.record.token) != (look.record.state, look.record.token):
            # It went on while its message was looked for.
            facts = self._facts(again, now_ms)
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
        return TaskInFull(**facts, history=tuple(history), **more)

    def _ended(self, task_id: str) -> TaskInFull:
        """Return what is kept of a task that has no record."""
        kept = self.ledger.ended_task(task_id) or stored_task(self.app, task_id)
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
        groups, known = [group] if group else None, LetterGroups(self.app, self.ledger)
        if group:
            known.get(group)
        elif state is Kind.DEAD:
            groups = known.fitting(filter_)
        now_ms = self.ledger.numbers().now_ms
        orders = self.ledger.orders.read()
        walk = Walk(
            self.app,
            self.ledger,
            filter_,
            now_ms,
            kind=state,
            groups=groups,
            is_latest_first=is_latest_first,
            place=Position.of(cursor),
            look_seconds=look_seconds,
        )

        def view(look: Look) -> Task:
            return Task(**Situation(self, look, orders, now_ms, is_alone=False).facts())

        return walk.page(limit, view)

    def _facts(self, look: Look, now_ms: int) -> dict[str, Any]:
        """Return what a list has of a task, with more to say of why it waits."""
        orders = self.ledger.orders.read()
        return Situation(self, look, orders, now_ms, is_alone=True).facts()


def _history(published_ms: int, noted: Iterable[HistoryEntry]) -> list[Entry]:
    """Return what happened to a task, with the beginning of each attempt of which that is known."""
    found = [Entry(moment(published_ms), "published")] if published_ms else []
    for one in noted:
        end = Entry(moment(one.at_ms), one.what, one.attempt, one.cause, one.owner, one.pid)
        if one.claimed_ms:
            found.append(replace(end, at=moment(one.claimed_ms), what="started", cause=""))
        found.append(end)
    return found
