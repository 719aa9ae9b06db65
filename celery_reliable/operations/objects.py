"""The objects that tasks have to themselves: who has one, since when, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from celery import Celery

from celery_reliable.exceptions import ObjectIdError
from celery_reliable.ledger import Held, Ledger, Look, ObjectLook, line_of
from celery_reliable.model import MOST_PLACES, Record
from celery_reliable.operations.messages import object_name
from celery_reliable.operations.pages import Page, TaskWalk
from celery_reliable.operations.views import Holder, Object
from celery_reliable.operations.words import moment
from celery_reliable.options import is_reliable, key_of, object_key
from celery_reliable.recovery import MOST_BYTES

__all__ = ["Objects", "since_ms"]

#: So many records are looked at for those that wait for an object, those first that try first.
_WAITERS_LOOKED_AT = 2_000
_MOST_WAITERS = 100


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

    def get(self, key: str, *, task_name: str = "", object_id: object = None) -> Object:
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

    def page(self, cursor: str = "", *, limit: int = 100) -> Page[Object]:
        """Return objects that tasks have, by their tasks: those that run, then those that wait.

        Each is listed once, with the first of those that have it; who stands in its line `get`
        tells.  One that is kept after a success (``once_for_seconds``) has no task, and is in no
        list; `get` tells of it, too.  Raises BadCursor.
        """
        walk = TaskWalk(self._ledger, None, cursor)
        found: list[Object] = []
        tasks: list[str] = []
        #: Many may stand in one line.
        seen: dict[str, tuple[str, Object]] = {}
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

    def _named(self, views: list[Object], task_ids: list[str]) -> list[Object]:
        """Return objects with their names; *task_ids*: of each a task that has it or waits."""
        found = self._ledger.find_in_groups(task_ids, most_bytes=MOST_BYTES)
        return [
            replace(view, object_name=self._name(one.record if one.is_readable else None, view))
            for view, one in zip(views, found, strict=True)
        ]

    def _name(self, record: Record | None, view: Object) -> str:
        if record is None:
            return view.object_key
        return object_name(self._app, record, view.object_key, sees_arguments=self._sees_arguments)

    def _listed(self, key: str, look: Look) -> tuple[str, Object]:
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
    ) -> Object:
        """Return an object; *about*: a task that has it, or waits for it, if one is known."""
        kept = next((held for _, held in found.held if held.kept_ms is not None), None)
        if kept is not None:
            holder = Holder(1, kept.task_id)
            return _object(key, (holder,), found.in_line, kept_seconds=(kept.kept_ms or 0) / 1000)
        holders = tuple(
            _holder(place, held, look)
            for (place, held), look in zip(found.held, looks, strict=True)
        )
        known = [one for one in [about, *looks] if one is not None]
        # A call may have said another number than its task; who stands in line has noted it.
        told = max((one.record.places for one in known), default=0)
        told = told or max((self._places_of(one.record.name) for one in known), default=1)
        places = max([told, *(one.place for one in holders)])
        return _object(key, holders, found.in_line, places)

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


def _object(
    key: str,
    holders: tuple[Holder, ...],
    in_line: int,
    places: int = 1,
    kept_seconds: float | None = None,
) -> Object:
    """Return an object that nobody has named yet."""
    first = holders[0] if holders else Holder(0, "")
    return Object(
        object_key=key,
        object_name="",
        holder=first.task_id,
        name=first.name,
        attempt=first.attempt,
        state=first.state,
        since=first.since,
        worker=first.worker,
        kept_seconds=kept_seconds,
        places=places,
        holders=holders,
        in_line=in_line,
        waiters=(),
        has_more=False,
    )


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


def _holder(place: int, held: Held, look: Look | None) -> Holder:
    if look is None:
        return Holder(place, held.task_id, attempt=held.attempt)
    return Holder(
        place,
        held.task_id,
        name=look.record.name,
        attempt=held.attempt,
        state=look.record.state.value,
        since=moment(since_ms(held, look)),
        worker=look.record.owner,
    )
