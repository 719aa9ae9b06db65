"""Dead letters by group: those that died of the same.

The scripts that bury a task file it into its group, and those that take it out of the dead letters
take it out of its group, in the same step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.ledger.caller import Part, text_of
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import Cause, DeadLetter, Group, GroupOfLetters, Reason

__all__ = ["Death", "Groups", "death_of"]

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


def death_of(letter: DeadLetter) -> Death:
    """Return what is known of how a letter's last attempt was lost; nothing of one that ended
    otherwise.
    """
    return Death.of(letter.exception) if letter.reason is Reason.LOST else Death()


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
