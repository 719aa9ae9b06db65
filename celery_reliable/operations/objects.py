"""The objects that tasks have to themselves: who has one, since when, and who waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from celery_reliable.clock import moment
from celery_reliable.ledger import Held, Look, line_of
from celery_reliable.model import MOST_PLACES
from celery_reliable.operations.listing import Page, Position, Walk
from celery_reliable.operations.operation import BadParameter, Cursor, Limit, Param, Part
from celery_reliable.operations.views import Holder, Object
from celery_reliable.options import is_reliable, key_of, object_key
from celery_reliable.recovery import MOST_BYTES

__all__ = ["Objects", "since_ms"]

#: So many of those that stand in line for an object are shown, the first.
_MOST_WAITERS = 100


class Objects(Part):
    """The objects of a ledger's namespace.  Raises what the ledger raises."""

    def key_of(self, task_name: str, object_id: object = None) -> str:
        """Return the key of one object of one task; without an id, that of a task of this app of
        which so many run at a time in the whole fleet (``at_most`` without ``object_id``).

        Raises BadParameter where the task needs an id.
        """
        if object_id is not None:
            return object_key(task_name, object_id)
        task = self.app.tasks.get(task_name)
        has_places = is_reliable(task) and type(task).object_id is None
        key = key_of(task, (), {}) if has_places else None
        if key is None:
            raise BadParameter(
                "object_id",
                f"Which object of {task_name!r}? Give its id, too. (Without one it would be a task "
                "of this app with at_most and without object_id.)",
            )
        return key

    def get(
        self,
        key: Annotated[
            str | None,
            Param("Its key.", min_length=1, is_argument=True, metavar="[KEY]"),
        ] = None,
        *,
        task: Annotated[
            str | None,
            Param(
                "The task of the object. Without an id: the task's own places (at_most).",
                min_length=1,
            ),
        ] = None,
        object_id: Annotated[
            str | None,
            Param(
                "The id of the object, as the task is called with it.",
                min_length=1,
            ),
        ] = None,
    ) -> Object:
        """Show which tasks hold an object and which stand in line for it, in their order.

        The object is named by its key, or by its task and its id.  The task alone means the places
        of the task (at_most without object_id).

        Raises BadParameter.
        """
        if (key is None) == (task is None) or (key is not None and object_id is not None):
            raise BadParameter("key", "Give the key, or task and object_id: one of them.")
        key = line_of(key or self.key_of(task or "", object_id))
        view = self._look_at(key, MOST_PLACES)
        if not (view.holders or view.waiters):
            view = replace(view, places=self._places_of(task or ""))
        if task is not None:
            name = task if object_id is None else f"{task} {object_id!r}"
        else:
            ids = [*view.waiters, *(one.task_id for one in view.holders)][:1]
            look = next(self.ledger.looks_in_groups(ids, most_bytes=MOST_BYTES), None)
            name = key if look is None else self.object_name(look.record, key)
        return replace(view, object_name=name)

    def page(self, *, limit: Limit = 50, cursor: Cursor = "") -> Page[Object]:
        """List the objects that tasks have, each with its places and those that have them.

        Raises BadParameter.  Each is listed once, with the first of those that have it; who stands
        in its line `get` tells.  One that is kept after a success (``once_for_seconds``) has no
        task, and is in no list; `get` tells of it, too.
        """
        walk = Walk(self.ledger, place=Position.of(cursor))
        #: Many may stand in one line.
        seen: dict[str, Object] = {}

        def view(look: Look) -> Object | None:
            if not look.object_key:
                return None
            key = line_of(look.object_key)
            if key not in seen:
                task = self.app.tasks.get(look.record.name)
                is_one = task is not None and not getattr(type(task), "at_most", None)
                places = 1 if is_one and key == look.object_key else MOST_PLACES
                seen[key] = self._look_at(key, places)
            holders = [one.task_id for one in seen[key].holders if one.state]
            if [*holders, *seen[key].waiters][:1] != [look.record.task_id]:
                return None
            name = self.object_name(look.record, key)
            return replace(seen[key], object_name=name, waiters=(), has_more=False)

        return walk.page(limit, view)

    def _look_at(self, key: str, places: int) -> Object:
        """Return an object without its name."""
        found = self.ledger.object_look(key, places=places, most_in_line=_MOST_WAITERS)
        ids = [*(held.task_id for _, held in found.held), *found.line]
        looks = self.ledger.look_all(ids)
        owners = looks[: len(found.held)]
        # Those in the line that have ended are removed as their turn comes.
        line = [one for one in looks[len(owners) :] if one and one.record.in_line_of == key]
        known = [one for one in (*line[:1], *owners) if one is not None]
        # A call may have said another number than its task; who stands in line has noted it.
        told = max((one.record.places for one in known), default=0)
        told = told or max((self._places_of(one.record.name) for one in known), default=1)
        kept = next((held for _, held in found.held if held.kept_ms is not None), None)
        holders = tuple(
            _holder(place, held, look)
            for (place, held), look in zip(found.held, owners, strict=True)
        )
        if kept is not None:
            told, holders = 1, (Holder(1, kept.task_id),)
        in_line = found.in_line - len(found.line) + len(line)
        return Object(
            object_key=key,
            object_name="",
            kept_seconds=(kept.kept_ms or 0) / 1000 if kept is not None else None,
            places=max([told, *(one.place for one in holders)]),
            holders=holders,
            in_line=in_line,
            waiters=tuple(one.record.task_id for one in line),
            has_more=in_line > len(line),
        )

    def _places_of(self, name: str) -> int:
        task = self.app.tasks.get(name)
        return getattr(type(task), "at_most", None) or 1


def since_ms(held: Held, look: Look | None) -> int:
    """Return since when a holder can have an object; 0: not known."""
    if look is None:
        return 0
    record = look.record
    if held.attempt == 0:
        return record.published_ms
    return record.claimed_ms if record.attempt == held.attempt else 0


def _holder(place: int, held: Held, look: Look | None) -> Holder:
    holder = Holder(place, held.task_id, attempt=held.attempt)
    if look is None:
        return holder
    record, since = look.record, moment(since_ms(held, look))
    return replace(
        holder, name=record.name, state=record.state.value, since=since, worker=record.owner
    )
