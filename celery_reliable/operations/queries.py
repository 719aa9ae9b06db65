"""What an operator can ask.  Nothing here changes anything, and everything may be repeated."""

from __future__ import annotations

from typing import Annotated

from celery import Celery

from celery_reliable.doctor import Examination, examine
from celery_reliable.exceptions import ObjectIdError, ReliableError
from celery_reliable.findings import Limits
from celery_reliable.operations.catalog import Command, Items, Operation, Param, Right
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.filters import EVERYTHING, OF_GROUPS_ONLY, Filter
from celery_reliable.operations.happenings import KINDS
from celery_reliable.operations.pages import Page
from celery_reliable.operations.views import (
    Audited,
    Groups,
    Happening,
    Object,
    Order,
    Queue,
    Run,
    Status,
    Task,
    TaskInFull,
    Worker,
)
from celery_reliable.operations.walks import Kind

__all__ = ["QUERIES", "BadObject", "UnknownRun"]

Id = Annotated[str, Param("Its id.", min_length=1, max_length=1000, is_argument=True, metavar="ID")]
Cursor = Annotated[str, Param("Go on where the page that gave it has ended.", max_length=10_000)]
Limit = Annotated[int, Param("At most so many.", ge=1, le=500)]


class UnknownRun(ReliableError, LookupError):
    """There is no such run, or none any more."""


class BadObject(ReliableError, ValueError):
    """It is not clear which object is meant; `parameter` says by which of them."""

    def __init__(self, parameter: str, why: str) -> None:
        self.parameter = parameter
        super().__init__(why)


def status(
    desk: Desk,
    *,
    oldest_seconds: Annotated[
        float,
        Param(
            "For so long a task may wait in its queue.",
            ge=0,
            le=1e10,
            is_duration=True,
            option="--max-age",
        ),
    ] = Limits.oldest_seconds,
    recent_seconds: Annotated[
        float,
        Param("So long ago a death or a burial is still told.", ge=0, le=1e10, is_duration=True),
    ] = Limits.recent_seconds,
    run_seconds: Annotated[
        float,
        Param(
            "For so long an attempt may run.", ge=0, le=1e10, is_duration=True, option="--max-run"
        ),
    ] = Limits.run_seconds,
) -> Status:
    """What waits, what runs where, who sweeps, and what is wrong.  All of it in one value."""
    return desk.status(
        Limits(
            oldest_seconds=oldest_seconds, recent_seconds=recent_seconds, run_seconds=run_seconds
        )
    )


def doctor(
    app: Celery,
    *,
    grace_seconds: Annotated[
        float | None,
        Param(
            "How long the orchestrator waits from SIGTERM to SIGKILL.  [default: GRACE_SECONDS]",
            ge=0.001,
            is_duration=True,
            option="--grace-seconds",
        ),
    ] = None,
) -> Examination:
    """Check settings, tasks, releases, servers and workers.

    Each finding has a code (docs/reference/findings.rst), what happens if it is ignored, and a
    remedy.
    """
    return examine(app, grace_seconds=grace_seconds)


def events(
    desk: Desk,
    *,
    kinds: Annotated[
        tuple[str, ...], Param("Only these; may be repeated.", choices=KINDS, option="--kind")
    ] = (),
    task: Annotated[
        str, Param("Of tasks with this name, which may be a pattern, or id.", max_length=1000)
    ] = "",
    since_seconds: Annotated[
        float | None,
        Param("Only so old.", ge=0, le=1e10, is_duration=True),
    ] = None,
    limit: Limit = 50,
) -> Items[Happening]:
    """List what happened to tasks and workers off the straight way, the latest at the end.

    What goes well is not among it.
    """
    return Items(
        desk.happenings.page(limit=limit, kinds=kinds, task=task, newer_than_seconds=since_seconds)
    )


def tasks(
    desk: Desk,
    *,
    state: Annotated[Kind | None, Param("Only in this.")] = None,
    filter_: Filter = EVERYTHING,
    limit: Limit = 50,
    cursor: Cursor = "",
) -> Page[Task]:
    """List tasks with what each waits for: those that run, then those that wait.

    Dead letters are listed with the state dead, the oldest first; a reason and an exception need
    it.
    """
    return desk.tasks.page(filter_, kind=state, cursor=cursor, limit=limit)


def task(
    desk: Desk,
    *,
    id_: Id,
    arguments: Annotated[
        bool,
        Param(
            "Show its arguments and the whole message, unredacted.",
            option="--with-arguments",
            needs=Right.SEE_ARGUMENTS,
        ),
    ] = False,
) -> TaskInFull:
    """Show one task, whatever became of it: its state, why it waits, and what happened to it.

    Its arguments are shown only to who asks for them, and may see them.
    """
    return desk.tasks.get(id_, with_arguments=arguments)


def objects(desk: Desk, *, limit: Limit = 50, cursor: Cursor = "") -> Page[Object]:
    """List the objects that tasks have, each with its places and those that have them."""
    return desk.objects.page(cursor, limit=limit)


def one_object(
    desk: Desk,
    *,
    key: Annotated[
        str | None,
        Param("Its key.", min_length=1, max_length=1000, is_argument=True, metavar="[KEY]"),
    ] = None,
    task: Annotated[
        str | None,
        Param(
            "The object of this task, with its id; alone: all of the task's places.",
            min_length=1,
            max_length=1000,
        ),
    ] = None,
    id_: Annotated[
        str | None,
        Param("The object's id, as its task is called with it.", min_length=1, max_length=1000),
    ] = None,
) -> Object:
    """Show who has an object and who waits for it: who stands in its line in order, and then who
    tries again.

    It is named by its key, or by the name of its task and its id; by the task alone where so many
    of a task run at a time (at_most without object_id).
    """
    if key is not None:
        if task is not None or id_ is not None:
            raise BadObject("key", "Give the key, or task and id: not both.")
        return desk.objects.get(key)
    if task is None:
        raise BadObject("key", "Give the key, or task and id.")
    try:
        key = desk.objects.key_of(task, id_)
    except ObjectIdError as exc:
        raise BadObject("id", str(exc)) from exc
    return desk.objects.get(key, task_name=task, object_id=id_)


def workers(
    desk: Desk,
    *,
    unacked: Annotated[
        bool,
        Param("Ask the broker, too, how many messages each was delivered.", option="--long"),
    ] = False,
) -> Items[Worker]:
    """List the workers that have a lease, what each runs, and since when."""
    return Items(tuple(desk.workers.all(with_broker=unacked)))


def queues(desk: Desk) -> Items[Queue]:
    """List queues: how much waits, how long the oldest already, and who consumes them."""
    return Items(tuple(desk.queues.all()))


def orders(desk: Desk) -> Items[Order]:
    """List what is paused, struck and drained: by whom, why, until when, and who obeys."""
    return Items(desk.orders.all())


def run(desk: Desk, *, id_: Id) -> Run:
    """Show a run (`task.run_on`): its members, which worker each has, and what is missing."""
    found = desk.runs.get(id_)
    if found is None:
        raise UnknownRun("There is no such run, or none any more.")
    return found


def runs(desk: Desk) -> Items[Run]:
    """List the runs of one task on several workers that are not over, the latest first; 50 at
    most.
    """
    return Items(tuple(desk.runs.all()))


def dead_letters(
    desk: Desk,
    *,
    group: Annotated[str, Param("Only this group, by its id.", max_length=1000)] = "",
    filter_: Filter = EVERYTHING,
    limit: Limit = 50,
    cursor: Cursor = "",
) -> Page[Task]:
    """List dead letters, the latest first, without their arguments."""
    return desk.tasks.page(
        filter_, kind=Kind.DEAD, group=group, is_latest_first=True, cursor=cursor, limit=limit
    )


def dead_letter_groups(
    desk: Desk, *, filter_: Annotated[Filter, Param(only=OF_GROUPS_ONLY)] = EVERYTHING
) -> Groups:
    """Group dead letters by task, reason, cause and exception, the largest group first."""
    return desk.letter_groups.all(filter_)


def audit(
    desk: Desk, *, limit: Annotated[int, Param("At most so many.", ge=1, le=1000)] = 50
) -> Items[Audited]:
    """List what operators did, the latest first: when it began, and how it ended.

    What has a beginning and no end was killed, or goes on.
    """
    return Items(tuple(desk.audit(limit)))


_VIEW = (Right.VIEW,)
_UNKNOWN = (404,)

QUERIES = (
    Operation(status, _VIEW, "status", (Command("status"),)),
    Operation(doctor, _VIEW, "", (Command("doctor"),)),
    Operation(events, _VIEW, "", (Command("events"),), noun="event"),
    Operation(tasks, _VIEW, "tasks", (Command("tasks"),), noun="task"),
    Operation(task, _VIEW, "task", (Command("show"),), problems=_UNKNOWN),
    Operation(
        run,
        _VIEW,
        "run",
        (
            Command(
                "run",
                "Show a run (`task.run_on`): its members, which worker each has, and what is "
                "missing.\n\nWithout an ID those are listed that are not over, the latest first.",
            ),
        ),
        problems=_UNKNOWN,
    ),
    Operation(runs, _VIEW, "runs", (Command("run"),), noun="run"),
    Operation(objects, _VIEW, "objects", (Command("objects"),), noun="object"),
    Operation(
        one_object,
        _VIEW,
        "object",
        (
            Command(
                "objects",
                "List the objects that tasks have, each with its places, or show who has one and "
                "who waits for it: who stands in its line in order, and then who tries again."
                "\n\nAn object is named by its KEY, or by --task and --id; --task alone means a "
                "task of which so many run at a time (at_most without object_id).",
            ),
        ),
    ),
    Operation(workers, _VIEW, "workers", (Command("workers"),), noun="worker"),
    Operation(queues, _VIEW, "queues", (Command("queues"),), noun="queue"),
    Operation(orders, _VIEW, "orders", (Command("orders"),), noun="order"),
    Operation(
        dead_letters,
        _VIEW,
        "dead-letters",
        (Command("dead-letters list"),),
        noun="dead letter",
        problems=_UNKNOWN,
    ),
    Operation(dead_letter_groups, _VIEW, "dead-letters/groups", (Command("dead-letters groups"),)),
    Operation(audit, _VIEW, "audit", (Command("audit"),), noun="entry"),
)
