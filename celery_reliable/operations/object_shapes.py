"""What objects, their places, and those that wait for named workers look like as JSON."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["Holder", "NobodyAlive", "Object", "TaskPlaces"]


class TaskPlaces(TypedDict):
    """A task of which so many run at a time in the whole fleet, and how many do."""

    task: str
    places: int
    taken: int


class NobodyAlive(TypedDict):
    """Tasks that wait for the same named workers."""

    only_workers: list[str]
    is_run: bool
    count: int
    alive: list[str]
    sentence: str


class Holder(TypedDict):
    """A task that has a place of an object."""

    place: int
    task_id: str
    name: str
    attempt: int
    state: str
    since: str | None
    worker: str


class Object(TypedDict):
    """An object that one task, or as many as it has places, have at a time; without a holder it is
    free. What says `holder` is of the first of the holders.
    """

    object_key: str
    #: What people call it: its task, and its id for who may see arguments.
    object_name: str
    holder: str
    name: str
    attempt: int
    state: str
    since: str | None
    worker: str
    kept_seconds: float | None
    places: int
    holders: list[Holder]
    in_line: int
    waiters: list[str]
    has_more: bool
