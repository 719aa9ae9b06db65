"""Dead letters by group: those that died of the same, in an index that its readers keep up to date.

The dead letters and their records are the truth.  No script that buries, replays or publishes knows
the index, so workers of a version without it do no harm, and no publication pays for it.  The index
lacks only what was buried after the last letter that was looked at, unless somebody changed it by
hand.  That, and entries too many, show by its size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.ledger import rows
from celery_reliable.ledger.caller import Part, clock_of, ms_of, text_of
from celery_reliable.ledger.indexes import entries_after
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import (
    CaughtUp,
    Cause,
    DeadLetter,
    Group,
    GroupOfLetters,
    HistoryEntry,
    Reason,
)

__all__ = [
    "Death",
    "Groups",
    "death_of",
    "group_of",
    "last_death",
]

_SIGNAL = re.compile(r"signal \d+ \((SIG\w{1,20})\)")
_EXIT_CODE = re.compile(r"exitcode (-?\d{1,10})")
_PID = re.compile(r"pid (\d{1,20})")
_WORDS = frozenset(cause.value for cause in Cause)


@dataclass(frozen=True)
class Death:
    """How an attempt was lost, as far as the line tells that its history has of it.  That line is
    written for people; what cannot be read of it is left out.
    """

    #: One of `model.Cause`; empty where the line says none.
    cause: str = ""
    #: "SIGKILL"; empty where it was none, or nobody knows.
    signal: str = ""
    exit_code: int | None = None
    #: The kernel had killed for want of memory just then.
    out_of_memory: bool = False
    pid: int | None = None

    @classmethod
    def of(cls, line: str) -> Death:
        """Read a line such as "child_lost: signal 9 (SIGKILL), pid 7, out of memory"."""
        cause, _, detail = line.partition(":")
        if cause not in _WORDS:
            return cls()
        if cause == Cause.NO_OUTCOME.value:
            # What follows is an exception's text, in which anything may stand.
            return cls(cause)
        parts = [part.strip() for part in detail.partition(";")[0].split(",")]
        signal, code, pid = (_first(one, parts) for one in (_SIGNAL, _EXIT_CODE, _PID))
        return cls(
            cause,
            signal or "",
            None if code is None else int(code),
            "out of memory" in parts,
            None if pid is None else int(pid),
        )

    def __str__(self) -> str:
        """Return what deaths of one kind have in common: "child_lost, SIGKILL, out of memory"."""
        parts = [
            self.cause,
            self.signal,
            "" if self.exit_code is None else f"exit code {self.exit_code}",
            "out of memory" if self.out_of_memory else "",
        ]
        return ", ".join(part for part in parts if part)


def _first(pattern: re.Pattern[str], parts: Sequence[str]) -> str | None:
    return next((found[1] for one in parts if (found := pattern.fullmatch(one))), None)


def last_death(history: Sequence[HistoryEntry], exception: str) -> Death:
    """Return what the last loss of a history was put down to; *exception*: what is said where the
    history says nothing.
    """
    lost = (entry.cause for entry in reversed(history) if entry.what == "lost")
    return Death.of(next(lost, exception))


#: How many letters one step looks at.
_BATCH = 500
#: How many steps there may be besides those that the letters need.
_MOST_STEPS = 10
#: The most characters of the name of a task or of an exception.
_LONGEST = 200
#: The most groups that are returned at once.
_MOST_GROUPS = 5_000
_ID = re.compile(r"[0-9a-f]{1,64}")
_MEMBER = re.compile(rb"([0-9a-f]+) (\d{1,20}) (.*)", re.DOTALL)
_TYPE = re.compile(rf"[\w.]{{1,{_LONGEST}}}")
#: A place before all letters.
_BEGINNING = b"0 "
_FIELDS = ("name", "reason", "exception", "history")


class Groups(Part):
    """The index."""

    # -- bringing it up to date

    def catch_up(self, limit: int) -> CaughtUp:
        """Look at those that were buried since the last look, and, where the index has too many or
        too few, at all of them, from where the last look ended; at *limit* in all.
        """
        left = limit
        # Where somebody changes it all the time it may never be right.
        for _ in range(_MOST_STEPS + 3 * limit // _BATCH):
            if left <= 0:
                break
            looked_at, is_all = self._add(min(left, _BATCH))
            left -= looked_at
            if not is_all:
                continue
            letters, grouped = self._sizes()
            if letters == grouped:
                return CaughtUp(letters, grouped, True)
            if grouped > letters and left > 0:
                left -= self._check(min(left, _BATCH))
            elif grouped < letters:
                # Somebody changed something: all of them again.
                self._note({}, added=_BEGINNING)
                left -= 1
        return CaughtUp(*self._sizes(), is_complete=False)

    def look_at(self, members: Sequence[bytes], *, checked: bytes = b"") -> None:
        """Have the index say of its *members* what the dead letters say; *checked*: all up to this
        one have been looked at.
        """
        read = [_MEMBER.fullmatch(member) for member in members]
        true = self._members_of([(one[3], int(one[2])) for one in read if one])
        # Whether one is dead still, and since when, the step itself looks at.
        self._note({**dict.fromkeys(members, ""), **true}, checked=checked)

    def left(self, letters: Sequence[DeadLetter]) -> None:
        """Have the index forget letters that are none any more, and no others."""
        self.look_at(
            [
                _member(group_of(letter).id, letter.buried_ms, encoded(letter.task_id))
                for letter in letters
            ]
        )

    def members_of(self, letters: Sequence[tuple[str, int]]) -> list[bytes]:
        """Return what stands in the index for letters, by their ids and the times of their
        burials.
        """
        return list(self._members_of([(encoded(id_), ms) for id_, ms in letters]))

    def _add(self, limit: int) -> tuple[int, bool]:
        """Add what was buried since the last look; return how many were looked at, and whether
        those were all.
        """
        now_ms, text = self._position("added")
        ms, _, id_ = text.partition(b" ")
        after = (int(ms), id_) if ms.isdigit() else None
        if after is not None and after[0] > now_ms:
            # The clock was ahead: whatever was buried since stands before it.
            after = None
        entries = self._caller.read(
            "dead after", lambda client: entries_after(client, self._keys.dead, after, limit)
        )
        # Nobody is buried at a time that is over.
        past = [(ms, id_) for id_, ms in entries if ms < now_ms]
        self._note(self._members_of(entries), added=b"%d %s" % past[-1] if past else b"")
        return len(entries), len(entries) < limit

    def _check(self, limit: int) -> int:
        """Look at members of the index, whether they are dead letters still and of their group;
        return at how many.
        """
        _, text = self._position("checked")
        begin = b"(" + text if text and text != _BEGINNING else b"-"
        members = self._members(begin, b"+", limit)
        is_all = len(members) < limit
        self.look_at(members, checked=_BEGINNING if is_all else members[-1])
        return max(1, len(members))

    def _note(
        self, members: Mapping[bytes, str], *, added: bytes = b"", checked: bytes = b""
    ) -> None:
        if members or added or checked:
            named = [value for pair in members.items() for value in pair]
            step = self._calls.group(added=added, checked=checked, letters=named)
            self._caller.run(step)

    def _position(self, name: str) -> tuple[int, bytes]:
        """Return the ledger's time in ms, and where a look ended."""
        *time, text = self._caller.read_all(
            "position", [*clock_of(self._keys), ("HGET", self._keys.groups, name)]
        )
        return ms_of(*time), text or b""

    def _sizes(self) -> tuple[int, int]:
        """Return how many dead letters there are, and how many the index has."""
        letters, grouped = self._caller.read_all(
            "sizes", [("ZCARD", self._keys.dead), ("ZCARD", self._keys.grouped)]
        )
        return letters, grouped

    def _members_of(self, entries: Sequence[tuple[bytes, int]]) -> dict[bytes, str]:
        """Return what stands in the index for letters, each with what its group has in common."""
        prefix = encoded(self._keys.record(""))
        found = self._caller.read_all(
            "groups of letters", [("HMGET", prefix + id_, *_FIELDS) for id_, _ in entries]
        )
        groups = [_group_in(row) for row in found]
        return {
            _member(group.id, ms, id_): group.to_text()
            for (id_, ms), group in zip(entries, groups, strict=True)
        }

    def _members(
        self, low: bytes, high: bytes, limit: int, *, is_latest_first: bool = False
    ) -> list[bytes]:
        begin, end = (high, low) if is_latest_first else (low, high)
        options = {"bylex": True, "desc": is_latest_first, "offset": 0, "num": limit}
        members: list[bytes] = self._caller.read(
            "grouped", lambda client: client.zrange(self._keys.grouped, begin, end, **options)
        )
        return members

    # -- reading

    def counts(self, *, since_ms: int = 0) -> list[GroupOfLetters]:
        """Return the groups, the largest first, of thousands not all; and what came *since_ms*."""
        texts = self._caller.read(
            "groups", lambda client: [*client.hscan_iter(self._keys.groups, count=1000)]
        )
        named = [group for _, text in texts if (group := _group_of(text)) is not None]
        # A hash that grows while it is read may tell twice of one.
        groups, key = list(dict.fromkeys(named))[:_MOST_GROUPS], self._keys.grouped
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
        grouped, *found = self._caller.read_all("groups", [("ZCARD", key), *commands])
        told = _counted(groups, found)
        if sum(one.count for one in told) < grouped and len(told) < _MOST_GROUPS:
            # A group's name is missing: it is written with each of its letters.
            self._note({}, added=_BEGINNING)
        return sorted(told, key=lambda one: (-one.count, -one.last_ms, one.group.id))

    def find(self, group_id: str) -> Group | None:
        """Return what the letters of a group have in common; None when there are none."""
        if not _ID.fullmatch(group_id):
            return None
        text = self._caller.read("group", lambda client: client.hget(self._keys.groups, group_id))
        return _group_of(text) if text else None

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
        members = self._members(low, high, limit, is_latest_first=is_latest_first)
        read = [_MEMBER.fullmatch(member) for member in members]
        return [(one[3].decode(), int(one[2])) for one in read if one]


def death_of(letter: DeadLetter) -> Death:
    """Return what is known of how a letter's last attempt was lost; nothing of one that ended
    otherwise.
    """
    if letter.reason is not Reason.LOST:
        return Death()
    return last_death(letter.history, letter.exception)


def group_of(letter: DeadLetter) -> Group:
    """Return the group that a letter is of."""
    return _group(letter.reason.value, letter.name, letter.exception, letter.history)


def _counted(groups: Sequence[Group], found: Sequence[Any]) -> list[GroupOfLetters]:
    """Return groups by what was *found* of each: its count, its first member, its last one, and how
    many are recent.
    """
    told = []
    parts = (found[at::4] for at in range(4))
    for group, count, first, last, recent in zip(groups, *parts, strict=True):
        ends = [_MEMBER.fullmatch(one) for one in (*first, *last)]
        if len(ends) == 2 and ends[0] and ends[1]:
            first_ms, last_ms = int(ends[0][2]), int(ends[1][2])
            example_id = text_of(ends[1][3])
            told.append(GroupOfLetters(group, count, first_ms, last_ms, example_id, recent))
    return told


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


def _member(group_id: str, ms: int, id_: bytes) -> bytes:
    return b"%s %015d %s" % (group_id.encode(), ms, id_)


def _group(reason: str, name: str, died_of: str, history: Sequence[HistoryEntry]) -> Group:
    if reason == Reason.LOST.value:
        told, type_ = str(last_death(history, died_of)), ""
    else:
        found = _TYPE.fullmatch(died_of.partition(":")[0])
        told, type_ = "", found[0] if found else ""
    return Group(reason[:_LONGEST], told, type_, name[:_LONGEST])


def _group_in(row: Sequence[bytes | None]) -> Group:
    """Return the group of a letter, by the fields of its record; one that is damaged is of one
    too.
    """
    name, reason, exception, history = (text_of(value or b"") for value in row)
    return _group(reason, name, exception, rows.history(history))


def _group_of(text: bytes) -> Group | None:
    """Return the group that was noted; None for what is none."""
    try:
        parts = json.loads(text)
    except ValueError:
        return None
    is_one = isinstance(parts, list) and len(parts) == 4
    return Group(*map(str, parts)) if is_one else None
