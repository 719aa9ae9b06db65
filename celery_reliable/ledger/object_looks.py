"""What operators look at of objects: who has their places, and who stands in their lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.ledger.place_steps import slots
from celery_reliable.ledger.replies import text_of
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import encoded

__all__ = ["Held", "ObjectLook", "ObjectLooks"]


@dataclass(frozen=True)
class Held:
    """What the lock of an object says.

    Attributes:
        task_id: who has it, or for whom it is kept.
        attempt: that took it; 0: it was taken as the task was published.
        kept_ms: for how long it is kept yet after a success; None: a task holds it.
    """

    task_id: str
    attempt: int
    kept_ms: int | None = None


@dataclass(frozen=True)
class ObjectLook:
    """An object with its places and its line.

    Attributes:
        held: who has which of its places, the first of which is 1.
        line: ids of those that stand in its line first, in order; some may have ended.
        in_line: how many stand there, those included.
    """

    held: tuple[tuple[int, Held], ...]
    line: tuple[str, ...] = ()
    in_line: int = 0


class ObjectLooks(TransitionGroup):
    """What is looked at of objects; it may have changed when the answer arrives."""

    def holders(self, object_keys: Sequence[str]) -> list[Held | None]:
        """Return what the locks of objects say, in one round trip; None for those that are free.

        A holder whose record is gone keeps nobody out, but while something of it is being stopped.
        """
        if not object_keys:
            return []

        def read(client: Any) -> list[Any]:
            pipe = client.pipeline(transaction=False)
            for object_key in object_keys:
                pipe.get(encoded(self.keys.lock(object_key)))
                pipe.pttl(encoded(self.keys.lock(object_key)))
            return list(pipe.execute())

        found = self._caller.read("holders", read)
        return [_held(value, ttl) for value, ttl in zip(found[::2], found[1::2], strict=True)]

    def object_look(self, object_key: str, *, places: int, most_in_line: int) -> ObjectLook:
        """Return who has which of the first *places* of an object, and at most *most_in_line* of
        those that stand in its line, in one round trip.
        """
        named = slots(object_key, places)

        def read(client: Any) -> list[Any]:
            pipe = client.pipeline(transaction=False)
            for slot in named:
                pipe.get(encoded(self.keys.lock(slot)))
            # Of several places none is kept.
            pipe.pttl(encoded(self.keys.lock(object_key)))
            pipe.zcard(encoded(self.keys.waiting(object_key)))
            pipe.zrange(encoded(self.keys.waiting(object_key)), 0, most_in_line - 1)
            return list(pipe.execute())

        *values, ttl, in_line, line = self._caller.read("object", read)
        held = [(place, _held(value, ttl)) for place, value in enumerate(values, 1)]
        return ObjectLook(
            tuple((place, one) for place, one in held if one is not None),
            tuple(text_of(task_id) for task_id in line),
            int(in_line),
        )

    def places_taken(self, objects: Mapping[str, int]) -> dict[str, int]:
        """Return how many places of each object are taken; *objects*: how many each has."""

        def read(client: Any) -> list[list[Any]]:
            pipe = client.pipeline(transaction=False)
            for object_key, places in objects.items():
                for slot in slots(object_key, places):
                    pipe.get(encoded(self.keys.lock(slot)))
            values = iter(pipe.execute())
            return [[next(values) for _ in range(places)] for places in objects.values()]

        found = self._caller.read("places", read) if objects else []
        return {
            object_key: sum(value is not None for value in values)
            for object_key, values in zip(objects, found, strict=True)
        }

    def line_of(
        self, object_key: str, places: int, task_id: str
    ) -> tuple[tuple[Held, ...], int | None]:
        """Return who has the places of an object, and how many stand in its line before a task;
        None if that does not stand there.
        """
        held = self.holders(slots(object_key, max(places, 1)))
        rank = self._caller.read(
            "line",
            lambda client: client.zrank(encoded(self.keys.waiting(object_key)), encoded(task_id)),
        )
        return tuple(one for one in held if one is not None), None if rank is None else int(rank)


def _held(value: bytes | None, ttl_ms: int) -> Held | None:
    if value is None:
        return None
    attempt, _, task_id = text_of(value).partition(":")
    if attempt == "kept":
        return Held(task_id, 0, max(0, int(ttl_ms)))
    return Held(task_id, int(attempt) if attempt.isdecimal() else 0)
