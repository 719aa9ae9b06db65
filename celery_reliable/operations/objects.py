"""The objects that tasks have to themselves: who has one, since when, and who waits for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from celery_reliable.ledger import Held, Ledger, Look
from celery_reliable.operations import shapes
from celery_reliable.operations.pages import Page
from celery_reliable.operations.times import iso
from celery_reliable.operations.walks import Walk
from celery_reliable.options import object_key

__all__ = ["ObjectView", "Objects", "since_ms"]

#: So many records are looked at for those that wait for an object, those first that try first.
_WAITERS_LOOKED_AT = 2_000
_MOST_WAITERS = 100


@dataclass(frozen=True)
class ObjectView:
    """One object.

    Attributes:
        object_key: the name of its lock: a digest of the task's name and the object's id.
        holder: the task that has it; empty: it is free.
        name: of that task.
        attempt: of the holder that took it; 0: it was taken as the task was published (``unique``).
        state: of the holder; empty for one that has ended.
        since_ms: since when at the earliest: the attempt's beginning, or the publication.
        worker: that runs the holder.
        kept_seconds: for how long the object is kept yet after a success; None: a task has it.
        waiters: tasks that wait for it, as far as was looked.
        has_more: there may be more that wait.
    """

    object_key: str
    holder: str = ""
    name: str = ""
    attempt: int = 0
    state: str = ""
    since_ms: int = 0
    worker: str = ""
    kept_seconds: float | None = None
    waiters: tuple[str, ...] = ()
    has_more: bool = False

    @property
    def is_free(self) -> bool:
        """Whether nobody has it."""
        return not self.holder

    def as_dict(self) -> shapes.Object:
        """The same as plain JSON values."""
        return {
            "object_key": self.object_key,
            "holder": self.holder,
            "name": self.name,
            "attempt": self.attempt,
            "state": self.state,
            "since": iso(self.since_ms),
            "worker": self.worker,
            "kept_seconds": self.kept_seconds,
            "waiters": list(self.waiters),
            "has_more": self.has_more,
        }


class Objects:
    """The objects of a ledger's namespace.  Raises what the ledger raises."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def key_of(self, task_name: str, object_id: object) -> str:
        """Return the key of one object of one task.  Raises ObjectIdError for what is no id."""
        return object_key(task_name, object_id)

    def get(self, key: str) -> ObjectView:
        """Return who has an object, and who waits for it; a free one too."""
        (held,) = self._ledger.holders([key])
        view = ObjectView(key)
        if held is not None:
            (look,) = self._ledger.look_all([held.task_id])
            view = _view(key, held, look)
        waiters, has_more = self._waiters(key)
        return replace(view, waiters=waiters, has_more=has_more)

    def page(self, cursor: str = "", *, limit: int = 100) -> Page[ObjectView]:
        """Return objects that tasks have, by their tasks: those that run, then those that wait.

        One that is kept after a success (``once_for_seconds``) has no task, and is in no list;
        `get` tells of it.  Raises BadCursor.
        """
        walk = Walk(self._ledger, None, cursor)
        found: list[ObjectView] = []
        for look in walk:
            if look.object_key:
                found += self._held_by(look)
                if len(found) >= limit:
                    break
        return Page(tuple(found), walk.cursor, walk.looked_at)

    def _held_by(self, look: Look) -> list[ObjectView]:
        (held,) = self._ledger.holders([look.object_key])
        # The record notes it before it has the lock, and may have lost it.
        is_his = held is not None and held.task_id == look.record.task_id
        return [_view(look.object_key, held, look)] if held is not None and is_his else []

    def _waiters(self, key: str) -> tuple[tuple[str, ...], bool]:
        ids = [one for one, _ in self._ledger.due_after(None, _WAITERS_LOOKED_AT)]
        found = [
            look.record.task_id
            for look in self._ledger.look_all(ids)
            if look is not None and look.waiting_for == key
        ]
        has_more = len(ids) == _WAITERS_LOOKED_AT or len(found) > _MOST_WAITERS
        return tuple(found[:_MOST_WAITERS]), has_more


def since_ms(held: Held, look: Look | None) -> int:
    """Return since when a holder can have an object; 0: not known."""
    if look is None:
        return 0
    record = look.record
    if held.attempt == 0:
        return record.published_ms
    return record.claimed_ms if record.attempt == held.attempt else 0


def _view(key: str, held: Held, look: Look | None) -> ObjectView:
    if held.kept_ms is not None:
        return ObjectView(key, held.task_id, kept_seconds=held.kept_ms / 1000)
    return ObjectView(
        key,
        held.task_id,
        name=look.record.name if look is not None else "",
        attempt=held.attempt,
        state=look.record.state.value if look is not None else "",
        since_ms=since_ms(held, look),
        worker=look.record.owner if look is not None else "",
    )
