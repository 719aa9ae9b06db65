"""Judges a world: what the independent checker finds, but for what the table allows.

An allowance is for the tasks that a fault touched, by its times, and for no others. What a worker
ran when it was declared dead is told to the checker as it is; the checker knows what that means.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proof.checker import check
from proof.leftovers import LEDGER
from proof.soak import table
from proof.soak.deaths import Death
from proof.soak.faults import Happened
from proof.soak.table import FAULTS, STRAY

__all__ = ["Anomaly", "Judgement", "judge", "unexplained"]

#: A row is written a moment after the write that it reports.
_LATE_SECONDS = 1.0
#: Or before it: a task is about to be published, a result is stored before its task is settled.
_EARLY_SECONDS = 1.0
#: How long after its fault a worker may be declared dead.
_DECLARED_SECONDS = 2.0
_MICROSECONDS = 1_000_000
_LOCK = f"{LEDGER}lock:"

Row = dict[str, Any]


@dataclass(frozen=True)
class Anomaly:
    """What should not be, and of whom."""

    kind: str
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.detail}"


@dataclass(frozen=True)
class Judgement:
    """What is beyond the table, and what the table allows, by the fault that allows it."""

    faults: list[Anomaly] = field(default_factory=list)
    allowed: list[tuple[str, Anomaly]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def judge(
    rows: Sequence[Row],
    happened: Sequence[Happened],
    deaths: Sequence[Death],
    stray: Iterable[str],
) -> Judgement:
    """Judge a log in the order of its times, which are microseconds.

    Raises proof.checker.NotALogError when it is none, or says nothing.
    """
    verdict = check(_with_zombies(rows, deaths))
    late = _begun_late(rows, happened, deaths)
    # What is there without them, too, does not come of them.
    others = Counter((one.kind, one.what) for one in _without(rows, late, deaths))
    told = _Told(rows)
    went_back = any(one.lost is not None for one in happened)
    found = Judgement(counts=verdict.counts)
    left = [Anomaly(STRAY, key, "it is there at the end") for key in stray]
    seen = [Anomaly(fault.kind, fault.what, fault.detail) for fault in verdict.faults]
    for fault in [*seen, *left]:
        names = [one.fault for one in happened if _allows(one, fault, told)]
        if others[fault.kind, fault.what]:
            others[fault.kind, fault.what] -= 1
        else:
            names += [one for one, begun in late if _may_cost(one, begun, fault)]
        if went_back:
            names += [one.fault for one in happened if _is_late(one, fault)]
        if names:
            found.allowed.append((names[0], fault))
        else:
            found.faults.append(fault)
    return found


class _Told:
    """What the log says of one task."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._by_task: dict[str, list[Row]] = defaultdict(list)
        self.headers: dict[str, list[str]] = {}
        self.tasks_of: dict[str, set[str]] = defaultdict(set)
        tasks: dict[str, str] = {}
        for row in rows:
            task = row.get("task")
            if row["kind"] == "begin":
                tasks[row["run"]] = row["task"]
                if row.get("object"):
                    self.tasks_of[row["object"]].add(row["task"])
            if row["kind"] == "end":
                task = tasks.get(row["run"])
            if row["kind"] == "chord":
                self.headers[row["body"]] = row["headers"]
            if task is not None:
                self._by_task[task].append(row)

    def within(self, lost: tuple[float, float], task: str, *kinds: str) -> bool:
        """Whether such a row of a task is of that time."""
        since, until = lost[0] - _EARLY_SECONDS, lost[1] + _LATE_SECONDS
        return any(
            row["kind"] in kinds and since <= row["at"] / _MICROSECONDS <= until
            for row in self._by_task[task]
        )


def _begun_late(
    rows: Sequence[Row], happened: Sequence[Happened], deaths: Sequence[Death]
) -> list[tuple[str, Row]]:
    """What a worker that a fault befell began as it went on, when it had been declared dead and a
    later attempt had begun elsewhere; and the name of the fault.
    """
    found = []
    begun = [row for row in rows if row["kind"] == "begin"]
    for one in happened:
        died = [death.at for death in deaths if _explains(one, death)]
        until = one.until + _DECLARED_SECONDS
        found += [
            (one.fault, row)
            for row in begun
            if str(row["worker"]).startswith(f"{one.worker}@")
            and min(died, default=until) < row["at"] / _MICROSECONDS <= until
            and any(_is_later(other, row) for other in begun if other["at"] < row["at"])
        ]
    return found


def _without(
    rows: Sequence[Row],
    late: Sequence[tuple[str, Row]],
    deaths: Sequence[Death],
) -> Iterable[Anomaly]:
    """What the checker finds without what was begun late."""
    runs = {row["run"] for _, row in late}
    rest = [row for row in rows if row.get("run") not in runs]
    found = check(_with_zombies(rest, deaths)).faults
    return [Anomaly(fault.kind, fault.what, fault.detail) for fault in found]


def _may_cost(fault: str, begun: Row, found: Anomaly) -> bool:
    is_of_it = found.what in (begun["task"], begun.get("object"))
    return is_of_it and found.kind in FAULTS[fault].allows


def _is_later(row: Row, other: Row) -> bool:
    """Whether a row is of a later attempt of the same task than the other."""
    is_same = row["task"] == other["task"]
    return is_same and (row.get("attempt") or 0) > (other.get("attempt") or 0)


def _with_zombies(rows: Sequence[Row], deaths: Sequence[Death]) -> list[Row]:
    """Let what a worker ran when it was declared dead be of a worker of its own, which is."""
    found = [dict(row) for row in rows]
    for number, death in enumerate(deaths):
        name, at = f"zombie {number}", death.at * _MICROSECONDS
        for row in found:
            is_his = str(row.get("worker")).startswith(f"{death.worker}@")
            # What it began before, and did not stop; the checker says until when it counts.
            if row["kind"] == "begin" and is_his and row["at"] <= at:
                row["worker"] = name
        found.append({"kind": "declared", "worker": name, "at": at})
    return sorted(found, key=lambda row: float(row["at"]))


def unexplained(happened: Sequence[Happened], deaths: Sequence[Death]) -> list[Death]:
    """The deaths of workers to whom nothing had happened that may cost them their leases."""
    return [death for death in deaths if not any(_explains(one, death) for one in happened)]


def _explains(one: Happened, death: Death) -> bool:
    may_die = (
        FAULTS[one.fault].allows.get("overlap") == table.ZOMBIES and one.worker == death.worker
    )
    return may_die and one.began <= death.by and death.at <= one.until + _DECLARED_SECONDS


def _allows(one: Happened, fault: Anomaly, told: _Told) -> bool:
    condition = FAULTS[one.fault].allows.get(fault.kind)
    if condition is None or one.lost is None:
        return False
    return _CONDITIONS[condition](one.lost, fault.what, told)


def _is_late(one: Happened, fault: Anomaly) -> bool:
    return FAULTS[one.fault].allows.get(fault.kind) == table.LATE and fault.what in one.put_off


def _is_published(lost: tuple[float, float], task: str, told: _Told) -> bool:
    return told.within(lost, task, "publish", "published")


def _is_ended(lost: tuple[float, float], task: str, told: _Told) -> bool:
    return told.within(lost, task, "begin", "settled")


def _is_begun(lost: tuple[float, float], task: str, told: _Told) -> bool:
    return told.within(lost, task, "begin")


def _has_header(lost: tuple[float, float], body: str, told: _Told) -> bool:
    headers = told.headers.get(body, ())
    return any(told.within(lost, one, "settled", "end", "publish") for one in headers)


def _is_of_object(lost: tuple[float, float], object_id: str, told: _Told) -> bool:
    return any(told.within(lost, task, "begin") for task in told.tasks_of.get(object_id, ()))


def _is_held(lost: tuple[float, float], key: str, told: _Told) -> bool:
    if not key.startswith(_LOCK):
        return False
    # The name of a lock has its object in it, and the number of a place.
    name = key.removeprefix(_LOCK)
    return any(
        told.within(lost, task, "begin", "end", "publish", "settled")
        for object_, tasks in told.tasks_of.items()
        if object_ in name
        for task in tasks
    )


_CONDITIONS: dict[str, Callable[[tuple[float, float], str, _Told], bool]] = {
    table.PUBLISHED: _is_published,
    table.ENDED: _is_ended,
    table.BEGUN: _is_begun,
    table.OF_OBJECT: _is_of_object,
    table.HEADERS: _has_header,
    table.HELD: _is_held,
}
