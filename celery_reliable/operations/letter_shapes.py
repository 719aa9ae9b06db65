"""What dead letters, their groups and what is done to them look like as JSON: see `shapes`."""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = [
    "DeadLetter",
    "DeadLetterInFull",
    "Done",
    "Group",
    "Groups",
    "Killed",
    "LetterEntry",
    "Replayed",
]


class DeadLetter(TypedDict):
    """A dead letter in a list."""

    task_id: str
    name: str
    reason: str
    exception: str
    cause: str
    group: str
    attempts: int
    losses: int
    published_at: str | None
    buried_at: str | None
    queue: str


class Killed(TypedDict):
    """What killed the last attempt."""

    cause: str
    signal: str
    exit_code: int | None
    out_of_memory: bool
    pid: int | None


class LetterEntry(TypedDict):
    """A line of a dead letter's history."""

    at: str | None
    what: str
    attempt: int
    cause: str
    worker: str


class DeadLetterInFull(DeadLetter):
    """A dead letter; what may repeat an argument is redacted unless it was asked for."""

    death: Killed | None
    traceback: str
    history: list[LetterEntry]
    args: Any
    kwargs: Any
    headers: dict[str, Any]
    body: Any
    properties: Any
    content_type: str


class Group(TypedDict):
    """Dead letters that died of the same."""

    group: str
    count: int
    task: str
    reason: str
    cause: str
    exception: str
    first_at: str | None
    last_at: str | None
    example: str


class Groups(TypedDict):
    """The groups, the largest first; of how many letters the group is known, of how many."""

    groups: list[Group]
    letters: int
    grouped: int


class Replayed(TypedDict):
    """A dead letter that is queued again."""

    task_id: str
    next_attempt: int
    sent: bool
    problem: str


class Done(TypedDict):
    """What was done to many dead letters, or with a dry run would be."""

    run: str
    before: str | None
    done: int
    failed: int
    gone: int
    unsent: int
    is_dry_run: bool
    is_whole: bool
    cursor: str
    problem: str
    examples: list[str]
