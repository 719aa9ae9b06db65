"""What the operations answer, beside the shapes of the views."""

from __future__ import annotations

from typing import Any, TypedDict

from celery_reliable.operations import (
    Audited,
    DeadLetter,
    Object,
    Order,
    Queue,
    Run,
    Task,
    Worker,
)

__all__ = [
    "AuditAnswer",
    "DeadLetterPage",
    "Discarded",
    "Document",
    "ObjectPage",
    "OrdersAnswer",
    "QueuesAnswer",
    "ReplayedEdited",
    "RunsAnswer",
    "Swept",
    "TaskPage",
    "WorkersAnswer",
]


class _Page(TypedDict):
    cursor: str
    looked_at: int
    is_last: bool


class TaskPage(_Page):
    """Some tasks.  A page may be short, or empty, and not the last: go on with its cursor."""

    items: list[Task]


class ObjectPage(_Page):
    """Some objects.  A page may be short, or empty, and not the last: go on with its cursor."""

    items: list[Object]


class DeadLetterPage(_Page):
    """Some dead letters, and how many there are in all.  A page may be short, or empty, and not the
    last: go on with its cursor.
    """

    items: list[DeadLetter]
    total: int


class WorkersAnswer(TypedDict):
    """All workers."""

    items: list[Worker]


class QueuesAnswer(TypedDict):
    """All queues."""

    items: list[Queue]


class OrdersAnswer(TypedDict):
    """What is paused, struck and drained."""

    items: list[Order]


class RunsAnswer(TypedDict):
    """Runs that are not over."""

    items: list[Run]


class AuditAnswer(TypedDict):
    """What operators did, the latest first."""

    items: list[Audited]


class Discarded(TypedDict):
    """A dead letter that is removed for good."""

    task_id: str


class ReplayedEdited(TypedDict):
    """A dead letter that is discarded, and the task that is published in its place."""

    task_id: str
    new_task_id: str


class Swept(TypedDict):
    """Whether a pass was run, and what it did: counts by name, times in seconds."""

    ran: bool
    report: dict[str, float | int | bool] | None


Document = dict[str, Any]
