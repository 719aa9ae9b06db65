"""What waits in the ledger and in no queue: for its moment, for a place, for a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from celery import Celery

from celery_reliable.ledger import Ledger
from celery_reliable.message import NamedWorkers
from celery_reliable.operations import shapes
from celery_reliable.operations.workers import WorkerView
from celery_reliable.options import is_limited, is_reliable, key_of, stands_in_line

__all__ = ["NobodyAlive", "TaskPlaces", "Waiting", "look_at_waiting"]

#: Of those that wait for workers so many are looked at, and so many kinds of them are told.
_LOOKED_AT = 1_000
_MOST_KINDS = 20
_MOST_NAMED = 5
#: So many of a kind are asked since when they wait.
_MOST_EXAMPLES = 20
#: Tasks in line whose code this app has not.
_OTHERS = "(others)"


@dataclass(frozen=True)
class TaskPlaces:
    """A task of which so many run at a time in the whole fleet, and how many do."""

    task: str
    places: int
    taken: int

    def as_dict(self) -> shapes.TaskPlaces:
        """The same as plain JSON values."""
        return {"task": self.task, "places": self.places, "taken": self.taken}


@dataclass(frozen=True)
class NobodyAlive:
    """Tasks that wait for the same named workers.

    Attributes:
        only_workers: patterns of the workers that may run them; none: any.
        is_run: they are members of runs, which wait for workers that no other member has.
        count: how many tasks, as far as was looked.
        alive: names of such workers that live nevertheless: they are drained, have no queue of
            their own, are leaving, or have only just started.
        drained: those of them that are drained.
        since_ms: since when the longest of some of them waits; 0: not known.
    """

    only_workers: tuple[str, ...]
    is_run: bool
    count: int
    alive: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    since_ms: int = 0

    @property
    def sentence(self) -> str:
        """The same in words."""
        named = ", ".join(self.only_workers) or "any worker"
        told = [f"{one} (drained)" if one in self.drained else one for one in self.alive]
        alive = f"alive: {', '.join(told[:_MOST_NAMED])}" if told else "none alive"
        if self.is_run:
            return f"{self.count} for {named} that no other member of a run has ({alive})"
        if len(self.drained) == len(self.alive):
            return f"{self.count} for {named}: {alive}"
        return f"{self.count} for {named}: {alive}, with no queue of its own (worker_direct)?"

    def as_dict(self) -> shapes.NobodyAlive:
        """The same as plain JSON values."""
        return {
            "only_workers": [*self.only_workers],
            "is_run": self.is_run,
            "count": self.count,
            "alive": [*self.alive],
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class Waiting:
    """What waits so.

    Attributes:
        limited: how many tasks wait for their moment, by the names of this app's limited tasks.
        in_line: how many stand in line for a place, by the names of this app's tasks that may.
        places: this app's tasks of which so many run at a time (``at_most`` without ``object_id``).
        for_workers: how many wait as none of the workers that they name is alive.
        named: the same by whom they wait for, the most first.
    """

    limited: Mapping[str, int] = field(default_factory=dict)
    in_line: Mapping[str, int] = field(default_factory=dict)
    places: tuple[TaskPlaces, ...] = ()
    for_workers: int = 0
    named: tuple[NobodyAlive, ...] = ()


def look_at_waiting(
    app: Celery, ledger: Ledger, in_line: Mapping[str, int], workers: Iterable[WorkerView]
) -> Waiting:
    """Look at it once; *in_line*: how many stand in line, by the name of the task.

    What is read is bounded.  Raises what the ledger raises.
    """
    tasks = {name: task for name, task in app.tasks.items() if is_reliable(task)}
    limited = ledger.paces.waiting(sorted(name for name, task in tasks.items() if is_limited(task)))
    standing = {name: 0 for name, task in sorted(tasks.items()) if stands_in_line(task)}
    for name, count in in_line.items():
        known = name if name in standing else _OTHERS
        standing[known] = standing.get(known, 0) + count
    for_workers = ledger.named.waiting()
    return Waiting(
        limited=limited,
        in_line=standing,
        places=_places(ledger, tasks),
        for_workers=for_workers,
        named=_named(ledger, workers) if for_workers else (),
    )


def _places(ledger: Ledger, tasks: Mapping[str, object]) -> tuple[TaskPlaces, ...]:
    found: dict[str, tuple[str, int]] = {}
    for name, task in sorted(tasks.items()):
        options = type(task)
        if getattr(options, "at_most", None) and getattr(options, "object_id", None) is None:
            key = key_of(task, (), {})
            if key is not None:
                found[key] = name, options.at_most  # type: ignore[attr-defined]
    taken = ledger.places_taken({key: places for key, (_, places) in found.items()})
    return tuple(TaskPlaces(name, places, taken[key]) for key, (name, places) in found.items())


def _named(ledger: Ledger, workers: Iterable[WorkerView]) -> tuple[NobodyAlive, ...]:
    counts: Counter[tuple[tuple[str, ...], bool]] = Counter()
    examples: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    entries = (one for some in ledger.named.each_waiting() for one in some)
    for task_id, text in islice(entries, _LOOKED_AT):
        named = NamedWorkers.from_text(text)
        kind = named.only, bool(named.run)
        counts[kind] += 1
        some = examples.setdefault(kind, [])
        if len(some) < _MOST_EXAMPLES:
            some.append(task_id)
    alive = sorted({one.nodename for one in workers if one.state == "alive"})
    orders = ledger.orders.read()
    drained = {one for one in alive if orders.is_drained(one, orders.now_ms)}
    found = []
    for (only, is_run), count in counts.most_common(_MOST_KINDS):
        meant = tuple(one for one in alive if NamedWorkers(only).means(one))
        no_more = tuple(one for one in meant if one in drained)
        looks = filter(None, ledger.look_all(examples[only, is_run]))
        since = [max(one.record.published_ms, one.record.sent_ms) for one in looks]
        since_ms = min(filter(None, since), default=0)
        found.append(NobodyAlive(only, is_run, count, meant, no_more, since_ms))
    return tuple(found)
