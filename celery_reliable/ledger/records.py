"""Reads of records, as tasks, dead letters, or what an operator looks at; and of dead letters by
group, those that died of the same.  Nothing here decides.

A record is read by a set of fields: whole, without what may be large, or those of one question.

The scripts that bury a task file it into its group, and those that take it out of the dead letters
take it out of its group, in the same step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from celery_reliable.ledger import schema
from celery_reliable.ledger.caller import Part, clock_of, ms_of
from celery_reliable.ledger.schema import text_of
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import (
    NO_GROUP,
    DeadLetter,
    EndedTask,
    Group,
    GroupOfLetters,
    HistoryEntry,
    Reason,
    Record,
    State,
)

__all__ = ["Found", "Groups", "Look", "Records"]

T = TypeVar("T")

_REASONS = frozenset(one.value for one in Reason)


#: The most groups that are returned at once.
_MOST_GROUPS = 5_000
_MEMBER = re.compile(rb"([0-9a-f]+) (\d{1,20}) (.*)", re.DOTALL)


class Groups(Part):
    """The index."""

    def counts(self, *, since_ms: int = 0) -> list[GroupOfLetters]:
        """Return the groups, the largest first, of thousands not all; and what came *since_ms*."""
        texts = self._caller.read(
            "groups", lambda client: [*client.hscan_iter(self.keys.groups, count=1000)]
        )
        # A hash that grows while it is read may tell twice of one.
        named = dict.fromkeys(Group.of(text_of(text)) for _, text in texts)
        groups, key = list(named)[:_MOST_GROUPS], self.keys.grouped
        commands: list[tuple[Any, ...]] = []
        for group in groups:
            low, high = f"[{group.id} ", f"({group.id}!"
            one = ("LIMIT", 0, 1)
            commands += [
                ("ZLEXCOUNT", key, low, high),
                ("ZRANGE", key, low, high, "BYLEX", *one),
                ("ZRANGE", key, high, low, "BYLEX", "REV", *one),
                ("ZLEXCOUNT", key, f"{low}{max(0, since_ms):015d}", high),
            ]
        found = self._caller.read_all("groups", commands)
        told = []
        parts = (found[at::4] for at in range(4))
        for group, count, first, last, recent in zip(groups, *parts, strict=True):
            ends = [_MEMBER.fullmatch(one) for one in (*first, *last)]
            if len(ends) == 2 and ends[0] and ends[1]:
                first_ms, last_ms = int(ends[0][2]), int(ends[1][2])
                example_id = text_of(ends[1][3])
                told.append(GroupOfLetters(group, count, first_ms, last_ms, example_id, recent))
        return sorted(told, key=lambda one: (-one.count, -one.last_ms, one.group.id))

    def find(self, group_id: str) -> Group | None:
        """Return what the letters of a group have in common; None when there are none."""
        text = self._caller.read("group", lambda client: client.hget(self.keys.groups, group_id))
        return Group.of(text_of(text)) if text else None

    def letters_of(
        self,
        group_id: str,
        after: tuple[int, str] | None,
        limit: int,
        *,
        is_latest_first: bool = False,
        until_ms: int | None = None,
    ) -> list[tuple[str, int]]:
        """Return ids and times of burials of a group: at most *limit* that follow the place
        *after*; *until_ms*: none that was buried later.
        """
        low, high = _range(group_id.encode(), after, until_ms, is_latest_first=is_latest_first)
        begin, end = (high, low) if is_latest_first else (low, high)
        how = {"bylex": True, "desc": is_latest_first, "offset": 0, "num": limit}
        members: list[bytes] = self._caller.read(
            "grouped", lambda client: client.zrange(self.keys.grouped, begin, end, **how)
        )
        read = [_MEMBER.fullmatch(member) for member in members]
        return [(one[3].decode(), int(one[2])) for one in read if one]


def _range(
    name: bytes, after: tuple[int, str] | None, until_ms: int | None, *, is_latest_first: bool
) -> tuple[bytes, bytes]:
    """Return the bounds of a group's members: those after a place, none buried after *until_ms*."""
    low, high = b"[%s " % name, b"(%s!" % name
    if until_ms is not None:
        high = b"(%s %015d" % (name, until_ms + 1)
    if after is None:
        return low, high
    place = b"(%s %015d %s" % (name, after[0], encoded(after[1]))
    return (low, min(high, place)) if is_latest_first else (place, high)


@dataclass(frozen=True)
class Found:
    """What one task's record has, not parsed yet."""

    task_id: str
    got: dict[str, str]

    @property
    def record(self) -> Record | None:
        """The record; None if there is none.

        Raises ValueError if it cannot be parsed: a later version or somebody else wrote it.
        """
        return schema.record(self.task_id, self.got)

    @property
    def is_readable(self) -> bool:
        """Whether `record` raises nothing."""
        try:
            schema.record(self.task_id, self.got)
        except ValueError:
            return False
        return True


@dataclass(frozen=True)
class Look:
    """A record as an operator looks at it; without its message and its traceback where many are
    looked at.

    Attributes:
        due_ms: when somebody must look at it; None: never, as what runs without a limit.
        object_key: the object that it notes as locked; empty for none.
    """

    record: Record
    due_ms: int | None
    object_key: str = ""
    history: tuple[HistoryEntry, ...] = ()
    reason: str = ""
    exception: str = ""
    traceback: str = ""
    group: Group = NO_GROUP

    @property
    def letter(self) -> DeadLetter | None:
        """It as a dead letter; None if it is none, or one of a reason that nobody here knows."""
        record = self.record
        if record.state is not State.DEAD or self.reason not in _REASONS:
            return None
        return DeadLetter(
            task_id=record.task_id,
            name=record.name,
            reason=Reason(self.reason),
            exception=self.exception,
            traceback=self.traceback,
            attempts=record.attempt,
            losses=record.losses,
            published_ms=record.published_ms,
            buried_ms=record.since_ms,
            message=record.message,
            history=self.history,
            is_owed=record.is_owed,
            group=self.group,
        )

    @property
    def cause(self) -> str:
        """The cause of its last loss; empty for none."""
        lost = (one.cause for one in reversed(self.history) if one.what in ("lost", "spared"))
        return next(lost, "")

    @property
    def rate_key(self) -> str:
        """Whose rate it waits for, or waited for before it was sent; empty for none."""
        kind, _, key = self.record.waiting_for.partition(" ")
        return key if kind == "rate" else ""


_LOOK = schema.Parser(Look, "record", "due_ms", "object_key", "reason", "exception", "group")
_LOOK_FIELDS = (*schema.RECORD_FIELDS, "object", "letter", *_LOOK.fields)
_LIGHT_LOOK_FIELDS = tuple(one for one in _LOOK_FIELDS if one not in ("message", "traceback"))


class Records(Part):
    """Reads of records, which may have changed when the answer arrives."""

    def server_facts(self) -> dict[str, str]:
        """Return INFO and the CONFIG values that are checked; some servers hide a few."""
        return self._caller.read("server facts", schema.server_facts)

    def ask(self, what: str, run: Callable[[Any], T], patience_seconds: float | None = None) -> T:
        """Return what *run* asks with a client.  Errors call it *what*."""
        return self._caller.read(what, run, patience_seconds)

    def _rows(
        self,
        what: str,
        task_ids: Sequence[str],
        fields: tuple[str, ...],
        patience_seconds: float | None = None,
    ) -> list[dict[str, str]]:
        """Return what records have of *fields*, in one round trip."""
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        found = self._caller.read_all(
            what, [("HMGET", key, *fields) for key in keys], patience_seconds
        )
        return [schema.texts(row, fields) for row in found]

    def _in_groups(
        self,
        task_ids: Sequence[str],
        most_bytes: int,
        read: Callable[[Sequence[str]], list[T]],
        patience_seconds: float | None = None,
    ) -> Iterator[T]:
        """Yield what is read of records, in groups whose messages have at most *most_bytes*
        together, unless one alone has more.
        """
        if not task_ids:
            return
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        lengths = self._caller.read_all(
            "lengths", [("HSTRLEN", key, "message") for key in keys], patience_seconds
        )
        start = n_bytes = 0
        for end, length in enumerate(lengths):
            if end > start and n_bytes + length > most_bytes:
                yield from read(task_ids[start:end])
                start, n_bytes = end, 0
            n_bytes += length
        yield from read(task_ids[start:])

    def find(self, task_id: str, *, patience_seconds: float | None = None) -> Record | None:
        """Return the record of *task_id*; None when it has ended or was never recorded."""
        return self.find_each([task_id], patience_seconds=patience_seconds)[0].record

    def find_each(
        self, task_ids: Sequence[str], *, patience_seconds: float | None = None
    ) -> list[Found]:
        """Return the records of *task_ids* unparsed, in one round trip: one that cannot be read
        does not hide the others.
        """
        found = self._rows("find", task_ids, schema.RECORD_FIELDS, patience_seconds)
        return [Found(task_id, got) for task_id, got in zip(task_ids, found, strict=True)]

    def find_in_groups(
        self,
        task_ids: Sequence[str],
        *,
        most_bytes: int,
        patience_seconds: float | None = None,
    ) -> Iterator[Found]:
        """Yield the same, read in groups.

        The messages of a group have at most *most_bytes* together, unless one alone has more.
        """
        return self._in_groups(
            task_ids,
            most_bytes,
            lambda some: self.find_each(some, patience_seconds=patience_seconds),
            patience_seconds,
        )

    def dead_letter(self, task_id: str) -> DeadLetter | None:
        """Return one dead letter; None if there is none, or if nobody here can read it."""
        look, _ = self.look(task_id)
        return None if look is None else look.letter

    def look(self, task_id: str) -> tuple[Look | None, int]:
        """Return the record of *task_id* with its message, None when there is none, and the
        ledger's time in ms.  Raises ValueError for one that cannot be read.
        """
        (found,), now_ms = self._looked_at([task_id], _LOOK_FIELDS)
        return _look(*found), now_ms

    def look_all(self, task_ids: Sequence[str]) -> list[Look | None]:
        """Return the records of *task_ids* without their messages, in one round trip; None for
        those that are gone, or cannot be read.
        """
        if not task_ids:
            return []
        found, _ = self._looked_at(task_ids, _LIGHT_LOOK_FIELDS)
        return [_readable(_look, *one) for one in found]

    def looks_in_groups(self, task_ids: Sequence[str], *, most_bytes: int) -> Iterator[Look | None]:
        """Yield the same with their messages, read in groups as by `find_in_groups`."""
        return self._in_groups(
            task_ids,
            most_bytes,
            lambda some: [_readable(_look, *one) for one in self._looked_at(some, _LOOK_FIELDS)[0]],
        )

    def _looked_at(
        self, task_ids: Sequence[str], fields: tuple[str, ...]
    ) -> tuple[list[tuple[str, dict[str, str], float | None]], int]:
        """Return ids with what their records have and when they are due; and the ledger's time."""
        commands: list[tuple[Any, ...]] = []
        for task_id in task_ids:
            commands.append(("HMGET", encoded(self.keys.record(task_id)), *fields))
            commands.append(("ZSCORE", self.keys.due, encoded(task_id)))
        *found, time, kept = self._caller.read_all("look", [*commands, *clock_of(self.keys)])
        each = zip(task_ids, found[::2], found[1::2], strict=True)
        texts = [(id_, schema.texts(row, fields), due_ms) for id_, row, due_ms in each]
        return texts, ms_of(time, kept)

    def ended_task(self, task_id: str) -> EndedTask | None:
        """Return what is kept of a task that has ended; None when nothing is.

        What has a record lives, whatever is kept of a former life of its id.
        """
        found = self._caller.read("ended", lambda client: client.hget(self.keys.ended, task_id))
        return None if found is None else schema.ended(task_id, found)


def _readable(read: Callable[..., T | None], *given: Any) -> T | None:
    """Return what is read; None of what a later version or somebody else has written."""
    try:
        return read(*given)
    except (KeyError, ValueError):
        return None


def _look(task_id: str, got: dict[str, str], due_ms: float | None) -> Look | None:
    record = schema.record(task_id, got)
    if record is None:
        return None
    reason, cause, kind, exception = got.get("letter", "\n\n\n").split("\n", 3)
    return _LOOK.make(
        got,
        record=record,
        due_ms=None if due_ms is None else int(due_ms),
        object_key=got.get("object", ""),
        reason=reason,
        exception=exception,
        group=Group(reason, cause, kind, record.name) if reason else NO_GROUP,
    )
