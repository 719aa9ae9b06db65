"""The operations that change nothing."""

from __future__ import annotations

from http import HTTPStatus

from msgspec import UnsetType

from celery_reliable.contrib.django.api.answers import (
    AuditAnswer,
    DeadLetterPage,
    ObjectPage,
    OrdersAnswer,
    QueuesAnswer,
    RunsAnswer,
    TaskPage,
    WorkersAnswer,
)
from celery_reliable.contrib.django.api.declaring import Asked, Operation
from celery_reliable.contrib.django.api.parameters import (
    AuditQuery,
    GroupsQuery,
    LetterQuery,
    LettersQuery,
    ObjectQuery,
    ObjectsQuery,
    StatusQuery,
    TaskQuery,
    TasksQuery,
    WorkersQuery,
)
from celery_reliable.contrib.django.api.problems import Problem
from celery_reliable.exceptions import ObjectIdError
from celery_reliable.operations import (
    DeadLetterInFull,
    Groups,
    Limits,
    Object,
    Right,
    Run,
    Status,
    TaskInFull,
    full_view,
)

__all__ = ["READS"]

_UNKNOWN = 404


def status(asked: Asked) -> Status:
    """All of it in one value, and what is wrong with it."""
    query: StatusQuery = asked.query
    limits = Limits(oldest_seconds=query.oldest_seconds, recent_seconds=query.recent_seconds)
    return asked.desk.status(limits)


def tasks(asked: Asked) -> TaskPage:
    """Tasks with what each waits for: those that run, then those that wait.

    Dead letters are listed with the state dead, the oldest first.
    """
    query: TasksQuery = asked.query
    page = asked.desk.tasks.page(
        query.filter(),
        kind=None if isinstance(query.state, UnsetType) else query.state,
        cursor=query.cursor,
        limit=query.limit,
    )
    return {
        "items": [*page.items],
        "cursor": page.cursor,
        "looked_at": page.looked_at,
        "is_last": page.is_last,
    }


def task(asked: Asked) -> TaskInFull:
    """One task, whatever became of it: its state, why it waits, and its flight record."""
    view = asked.desk.tasks.get(asked.query.id)
    if view.state == "absent":
        raise Problem(HTTPStatus.NOT_FOUND, "unknown_task", view.why.sentence)
    return view


def run(asked: Asked) -> Run:
    """One task on several workers: which worker each member has, and what is missing."""
    view = asked.desk.runs.get(asked.query.id)
    if view is None:
        said = "There is no such run, or none any more."
        raise Problem(HTTPStatus.NOT_FOUND, "unknown_run", said)
    return view


def runs(asked: Asked) -> RunsAnswer:
    """The runs of one task on several workers that are not over, the latest first; 50 at most."""
    return {"items": [*asked.desk.runs.all()]}


def objects(asked: Asked) -> ObjectPage:
    """The objects that tasks have, each with its places and those that have them."""
    page = asked.desk.objects.page(asked.query.cursor, limit=asked.query.limit)
    return {
        "items": [*page.items],
        "cursor": page.cursor,
        "looked_at": page.looked_at,
        "is_last": page.is_last,
    }


def one_object(asked: Asked) -> Object:
    """Who has an object, and who waits for it.

    It is named by its key, or by the name of its task and its id; by the name alone where so many
    of a task run at a time (at_most without object_id). Who stands in its line is told in order.
    """
    query: ObjectQuery = asked.query
    if not isinstance(query.key, UnsetType):
        if not (isinstance(query.task, UnsetType) and isinstance(query.id, UnsetType)):
            raise _bad("Give the key, or task and id: not both.", "key")
        return asked.desk.objects.get(query.key)
    if isinstance(query.task, UnsetType):
        raise _bad("Give the key, or task and id.", "key")
    object_id = None if isinstance(query.id, UnsetType) else query.id
    try:
        key = asked.desk.objects.key_of(query.task, object_id)
    except ObjectIdError as exc:
        raise _bad(str(exc), "id") from exc
    return asked.desk.objects.get(key, task_name=query.task, object_id=object_id)


def _bad(detail: str, parameter: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "bad_parameter", detail, parameter)


def workers(asked: Asked) -> WorkersAnswer:
    """The workers that have a lease, what each runs, and since when."""
    found = asked.desk.workers.all(with_broker=asked.query.unacked)
    return {"items": [*found]}


def queues(asked: Asked) -> QueuesAnswer:
    """What waits in each queue, how long already, and who consumes it."""
    return {"items": [*asked.desk.queues.all()]}


def orders(asked: Asked) -> OrdersAnswer:
    """What operators have paused, struck and drained: who, why, until when, and who obeys."""
    return {"items": [*asked.desk.orders.all()]}


def dead_letters(asked: Asked) -> DeadLetterPage:
    """Dead letters, the latest first, without their arguments."""
    query: LettersQuery = asked.query
    page = asked.desk.letter_pages.page(
        query.filter(), group=query.group, cursor=query.cursor, limit=query.limit
    )
    return {
        "items": [*page.items],
        "cursor": page.cursor,
        "looked_at": page.looked_at,
        "is_last": page.is_last,
        "total": asked.desk.letters.count(),
    }


def dead_letter_groups(asked: Asked) -> Groups:
    """Dead letters grouped by task, reason, cause and exception, the largest group first."""
    return asked.desk.letter_pages.groups(asked.query.filter())


def dead_letter(asked: Asked) -> DeadLetterInFull:
    """One dead letter; its arguments only for who asks for them, and may see them."""
    query: LetterQuery = asked.query
    return full_view(asked.desk.letters.get(query.id), with_arguments=query.arguments)


def audit(asked: Asked) -> AuditAnswer:
    """What operators did, the latest first: when it began, and how it ended."""
    return {"items": [*asked.desk.audit(asked.query.limit)]}


READS = (
    Operation("GET", "status", status, Status, query=StatusQuery),
    Operation("GET", "tasks", tasks, TaskPage, query=TasksQuery),
    Operation("GET", "task", task, TaskInFull, query=TaskQuery, problems=(_UNKNOWN,)),
    Operation("GET", "run", run, Run, query=TaskQuery, problems=(_UNKNOWN,)),
    Operation("GET", "runs", runs, RunsAnswer),
    Operation("GET", "objects", objects, ObjectPage, query=ObjectsQuery),
    Operation("GET", "object", one_object, Object, query=ObjectQuery),
    Operation("GET", "workers", workers, WorkersAnswer, query=WorkersQuery),
    Operation("GET", "queues", queues, QueuesAnswer),
    Operation("GET", "orders", orders, OrdersAnswer),
    Operation(
        "GET",
        "dead-letters",
        dead_letters,
        DeadLetterPage,
        query=LettersQuery,
        problems=(_UNKNOWN,),
    ),
    Operation("GET", "dead-letters/groups", dead_letter_groups, Groups, query=GroupsQuery),
    Operation(
        "GET",
        "dead-letter",
        dead_letter,
        DeadLetterInFull,
        query=LetterQuery,
        needs_for={"arguments": Right.SEE_ARGUMENTS},
        problems=(_UNKNOWN,),
    ),
    Operation("GET", "audit", audit, AuditAnswer, query=AuditQuery),
)
