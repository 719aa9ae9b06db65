"""The objects that tasks have to themselves: who has one, since when, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from celery import Celery

from celery_reliable.exceptions import ObjectIdError
from celery_reliable.ledger import Held, Ledger, Look, ObjectLook, line_of
from celery_reliable.model import MOST_PLACES, Record
from celery_reliable.operations import shapes
from celery_reliable.operations.messages import object_name
from celery_reliable.operations.pages import Page
from celery_reliable.operations.times import iso
from celery_reliable.operations.walks import Walk
from celery_reliable.options import is_reliable, key_of, object_key
from celery_reliable.recovery import MOST_BYTES

__all__ = ["HolderView", "ObjectView", "Objects", "since_ms"]

#: So many records are looked at for those that wait for an object, those first that try first.
_WAITERS_LOOKED_AT = 2_000
_MOST_WAITERS = 100


@dataclass(frozen=True)
class HolderView:
    """A task that has a place of an object, or for which that is kept.

    Attributes:
        place: which, from 1 on.
        name: of the task.
        attempt: of it that took the place; 0: it was taken as the task was published.
        state: of the task; empty for one that has ended.
        since_ms: since when at the earliest: the attempt's beginning, or the publication.
        worker: that runs it.
    """

    place: int
    task_id: str
    name: str = ""
    attempt: int = 0
    state: str = ""
    since_ms: int = 0
    worker: str = ""

    def as_dict(self) -> shapes.Holder:
        """The same as plain JSON values."""
        return {
            "place": self.place,
            "task_id": self.task_id,
            "name": self.name,
            "attempt": self.attempt,
            "state": self.state,
            "since": iso(self.since_ms),
            "worker": self.worker,
        }


@dataclass(frozen=True)
class ObjectView:
    """One object.

    Attributes:
        object_key: the name of its lock: a digest of the task's name and the object's id.
        object_name: what people call it (`messages.object_name`); the key where nobody knows.
        places: how many tasks may have it at a time, as far as is known: by this app's tasks, by
            who stands in its line, or by those that have it.
        holders: the tasks that have it, by their places; none: it is free.
        kept_seconds: for how long the object is kept yet after a success; None: tasks have it.
        in_line: how many stand in its line (``on_conflict="wait"``); of those behind the first
            hundred some may have ended.
        waiters: tasks that wait for it, as far as was looked: those in line, in their order, and
            then those that try again.
        has_more: there may be more that wait.
    """

    object_key: str
    object_name: str = ""
    places: int = 1
    holders: tuple[HolderView, ...] = ()
    kept_seconds: float | None = None
    in_line: int = 0
    waiters: tuple[str, ...] = ()
    has_more: bool = False

    @property
    def is_free(self) -> bool:
        """Whether nobody has it."""
        return not self.holders

    @property
    def holder(self) -> str:
        """The first task that has it; empty: it is free."""
        return self._first.task_id

    @property
    def name(self) -> str:
        """Of that task."""
        return self._first.name

    @property
    def attempt(self) -> int:
        """Of the first holder that took it; 0: it was taken as the task was published."""
        return self._first.attempt

    @property
    def since_ms(self) -> int:
        """Since when the first has it at the earliest."""
        return self._first.since_ms

    @property
    def worker(self) -> str:
        """The worker that runs the first."""
        return self._first.worker

    @property
    def _first(self) -> HolderView:
        return self.holders[0] if self.holders else HolderView(0, "")

    @property
    def has_places(self) -> bool:
        """Whether there is more to say of it than who has it."""
        return self.places > 1 or len(self.holders) > 1 or self.in_line > 0

    def as_dict(self) -> shapes.Object:
        """The same as plain JSON values."""
        first = self._first.as_dict()
        return {
            "object_key": self.object_key,
            "object_name": self.object_name,
            "holder": first["task_id"],
            "name": first["name"],
            "attempt": first["attempt"],
            "state": first["state"],
            "since": first["since"],
            "worker": first["worker"],
            "kept_seconds": self.kept_seconds,
            "places": self.places,
            "holders": [one.as_dict() for one in self.holders],
            "in_line": self.in_line,
            "waiters": list(self.waiters),
            "has_more": self.has_more,
        }


class Objects:
    """The objects of a ledger's namespace.  Raises what the ledger raises."""

    def __init__(self, app: Celery, ledger: Ledger, *, sees_arguments: bool = False) -> None:
        self._app = app
        self._ledger = ledger
        self._sees_arguments = sees_arguments

    def key_of(self, task_name: str, object_id: object = None) -> str:
        """Return the key of one object of one task; without an id, that of a task of this app of
        which so many run at a time in the whole fleet (``at_most`` without ``object_id``).

        Raises ObjectIdError for what is no id, and where the task needs one.
        """
        if object_id is not None:
            return object_key(task_name, object_id)
        task = self._app.tasks.get(task_name)
        key = None
        if is_reliable(task) and type(task).object_id is None:
            key = key_of(task, (), {})
        if key is None:
            raise ObjectIdError(
                f"Which object of {task_name!r}? Give its id, too. (Without one it would be a task "
                "of this app with at_most and without object_id.)"
            )
        return key

    def get(self, key: str, *, task_name: str = "", object_id: object = None) -> ObjectView:
        """Return who has an object, and who waits for it; a free one too.

        *task_name* and *object_id*: of its tasks, where they are known: how many places a free one
        has, and what it is called, depends on them.
        """
        key = line_of(key)
        found = self._ledger.object_look(key, places=MOST_PLACES, most_in_line=_MOST_WAITERS)
        in_line = [look for look in self._ledger.look_all(found.line) if _is_in_line(look, key)]
        found = _without(found, in_line)
        view = self._view(key, found, self._holders_of(found), in_line[0] if in_line else None)
        waiters = tuple(look.record.task_id for look in in_line if look is not None)
        if view.is_free and not waiters:
            view = replace(view, places=self._places_of(task_name))
        others, has_more = self._others(key, _MOST_WAITERS - len(waiters))
        waiters += others
        asked = " ".join([task_name, *([repr(object_id)] if object_id is not None else [])])
        (view,) = self._named([view], [next(iter((*waiters, view.holder)))])
        return replace(
            view,
            object_name=asked if task_name else view.object_name,
            waiters=waiters,
            has_more=has_more or found.in_line > len(found.line),
        )

    def page(self, cursor: str = "", *, limit: int = 100) -> Page[ObjectView]:
        """Return objects that tasks have, by their tasks: those that run, then those that wait.

        Each is listed once, with the first of those that have it; who stands in its line `get`
        tells.  One that is kept after a success (``once_for_seconds``) has no task, and is in no
        list; `get` tells of it, too.  Raises BadCursor.
        """
        walk = Walk(self._ledger, None, cursor)
        found: list[ObjectView] = []
        tasks: list[str] = []
        #: Many may stand in one line.
        seen: dict[str, tuple[str, ObjectView]] = {}
        for look in walk:
            if not look.object_key:
                continue
            key = line_of(look.object_key)
            if key not in seen:
                seen[key] = self._listed(key, look)
            whose, view = seen[key]
            if whose == look.record.task_id:
                found.append(view)
                tasks.append(whose)
            if len(found) >= limit:
                break
        return Page(tuple(self._named(found, tasks)), walk.cursor, walk.looked_at)

    def _named(self, views: list[ObjectView], task_ids: list[str]) -> list[ObjectView]:
        """Return objects with their names; *task_ids*: of each a task that has it or waits."""
        found = self._ledger.find_in_groups(task_ids, most_bytes=MOST_BYTES)
        return [
            replace(view, object_name=self._name(one.record if one.is_readable else None, view))
            for view, one in zip(views, found, strict=True)
        ]

    def _name(self, record: Record | None, view: ObjectView) -> str:
        if record is None:
            return view.object_key
        return object_name(self._app, record, view.object_key, sees_arguments=self._sees_arguments)

    def _listed(self, key: str, look: Look) -> tuple[str, ObjectView]:
        """Return an object as lists have it, and by whose record it is listed."""
        task = self._app.tasks.get(look.record.name)
        is_one = task is not None and not getattr(type(task), "at_most", None)
        places = 1 if is_one and key == look.object_key else MOST_PLACES
        found = self._ledger.object_look(key, places=places, most_in_line=_MOST_WAITERS)
        ids = [*(held.task_id for _, held in found.held), *found.line]
        looks: list[Look | None] = [look]
        if ids != [look.record.task_id]:
            looks = self._ledger.look_all(ids)
        whose = next((one.record.task_id for one in looks if one is not None), "")
        holders, waits = looks[: len(found.held)], looks[len(found.held) :]
        in_line = [one for one in waits if _is_in_line(one, key)]
        found, about = _without(found, in_line), next(iter(in_line), look)
        return whose, self._view(key, found, holders, about)

    def _holders_of(self, found: ObjectLook) -> list[Look | None]:
        """Return the records of those that have the places; None for one that has ended."""
        return self._ledger.look_all([held.task_id for _, held in found.held])

    def _view(
        self, key: str, found: ObjectLook, looks: list[Look | None], about: Look | None
    ) -> ObjectView:
        """Return an object; *about*: a task that has it, or waits for it, if one is known."""
        kept = next((held for _, held in found.held if held.kept_ms is not None), None)
        if kept is not None:
            kept_seconds = (kept.kept_ms or 0) / 1000
            holder = HolderView(1, kept.task_id)
            return ObjectView(
                key, holders=(holder,), kept_seconds=kept_seconds, in_line=found.in_line
            )
        holders = tuple(
            _holder(place, held, look)
            for (place, held), look in zip(found.held, looks, strict=True)
        )
        known = [one for one in [about, *looks] if one is not None]
        # A call may have said another number than its task; who stands in line has noted it.
        told = max((one.record.places for one in known), default=0)
        told = told or max((self._places_of(one.record.name) for one in known), default=1)
        places = max([told, *(one.place for one in holders)])
        return ObjectView(key, places=places, holders=holders, in_line=found.in_line)

    def _places_of(self, name: str) -> int:
        task = self._app.tasks.get(name)
        return getattr(type(task), "at_most", None) or 1

    def _others(self, key: str, most: int) -> tuple[tuple[str, ...], bool]:
        """Return those that try again after a while, as far as was looked."""
        ids = [one for one, _ in self._ledger.due_after(None, _WAITERS_LOOKED_AT)]
        found = [
            look.record.task_id
            for look in self._ledger.look_all(ids)
            if look is not None and look.waiting_for == key and not look.record.in_line_of
        ]
        has_more = len(ids) == _WAITERS_LOOKED_AT or len(found) > most
        return tuple(found[:most]), has_more


def since_ms(held: Held, look: Look | None) -> int:
    """Return since when a holder can have an object; 0: not known."""
    if look is None:
        return 0
    record = look.record
    if held.attempt == 0:
        return record.published_ms
    return record.claimed_ms if record.attempt == held.attempt else 0


def _is_in_line(look: Look | None, key: str) -> bool:
    return look is not None and look.record.in_line_of == key


def _without(found: ObjectLook, in_line: Sequence[Look | None]) -> ObjectLook:
    """Return it without those in the line that have ended: they are removed as their turn comes."""
    return replace(found, in_line=found.in_line - len(found.line) + len(in_line))


def _holder(place: int, held: Held, look: Look | None) -> HolderView:
    if look is None:
        return HolderView(place, held.task_id, attempt=held.attempt)
    return HolderView(
        place,
        held.task_id,
        name=look.record.name,
        attempt=held.attempt,
        state=look.record.state.value,
        since_ms=since_ms(held, look),
        worker=look.record.owner,
    )
