"""All that an operator can ask and do, with the names by which each door has it.

Queries change nothing.  Each act is noted in the audit.  Everything may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery

from celery_reliable.doctor import Examination, examine
from celery_reliable.findings import counted
from celery_reliable.operations.bulk import Bulk
from celery_reliable.operations.dead_letters import LetterGroups
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.history import Happenings
from celery_reliable.operations.listing import OF_GROUPS, OF_LIVING, Kind
from celery_reliable.operations.objects import Objects
from celery_reliable.operations.operation import Command, Operation, Right
from celery_reliable.operations.queues import named_queues, purge
from celery_reliable.operations.stop_button import StopButton
from celery_reliable.operations.tasks import Revocations, Runs, Tasks
from celery_reliable.operations.uninstall import release
from celery_reliable.operations.views import Done, Revoked
from celery_reliable.operations.workers import Workers
from celery_reliable.orders import OrderKind
from celery_reliable.recovery import MOST_PASSES_IN_A_ROW

__all__ = ["ACTS", "QUERIES"]


def doctor(app: Celery) -> Examination:
    """Check settings, tasks, releases, servers and workers.

    Each finding has a code (docs/reference/findings.rst), what happens if it is ignored, and a
    remedy.
    """
    return examine(app)


_VIEW = (Right.VIEW,)
_UNKNOWN, _CONFLICT = 404, 409

QUERIES = (
    Operation("status", Desk.status, _VIEW, "status", (Command("status"),)),
    Operation("doctor", doctor, _VIEW, "", (Command("doctor"),)),
    Operation(
        "events", Happenings.page, _VIEW, "", (Command("events"),), "happenings", noun="event"
    ),
    Operation(
        "tasks",
        Tasks.page,
        _VIEW,
        "tasks",
        (Command("tasks"),),
        "tasks",
        {"group": ""},
        OF_LIVING,
        noun="task",
    ),
    Operation("task", Tasks.get, _VIEW, "task", (Command("show"),), "tasks", problems=(_UNKNOWN,)),
    Operation(
        "run",
        Runs.get,
        _VIEW,
        "run",
        (
            Command(
                "run",
                "Show a run (`task.run_on`): its members, the worker of each, and which are "
                "missing.\n\nWithout an ID: list the runs that are not over, the latest first.",
            ),
        ),
        "runs",
        problems=(_UNKNOWN,),
    ),
    Operation("runs", Runs.all, _VIEW, "runs", (Command("run"),), "runs", noun="run"),
    Operation(
        "objects", Objects.page, _VIEW, "objects", (Command("objects"),), "objects", noun="object"
    ),
    Operation(
        "one_object",
        Objects.get,
        _VIEW,
        "object",
        (
            Command(
                "objects",
                "List the objects of tasks with their places, or show which tasks hold one object "
                "and which stand in line for it.\n\nName the object by its KEY, or by --task and "
                "--object-id.  --task alone means the places of the task (at_most without "
                "object_id).",
            ),
        ),
        "objects",
    ),
    Operation(
        "workers",
        Workers.all,
        _VIEW,
        "workers",
        (Command("workers"),),
        "workers",
        noun="worker",
    ),
    Operation(
        "orders", StopButton.all, _VIEW, "orders", (Command("orders"),), "orders", noun="order"
    ),
    Operation(
        "dead_letters",
        Tasks.page,
        _VIEW,
        "dead-letters",
        (Command("dead-letters list"),),
        "tasks",
        {"state": Kind.DEAD},
        help="List dead letters, the latest first, without their arguments.",
        noun="dead letter",
        problems=(_UNKNOWN,),
    ),
    Operation(
        "dead_letter_groups",
        LetterGroups.all,
        _VIEW,
        "dead-letters/groups",
        (Command("dead-letters groups"),),
        "letter_groups",
        parts=OF_GROUPS,
    ),
    Operation("audit", Desk.audit, _VIEW, "audit", (Command("audit"),), noun="entry"),
)


def _of_letters(question: str) -> Callable[[Desk, Mapping[str, Any], Done], str]:
    """Return what asks a question about so many dead letters."""

    def ask(desk: Desk, given: Mapping[str, Any], meant: Done) -> str:
        at_least = "" if meant.is_whole else "at least "
        return question.format(f"{at_least}{counted(meant.done, 'dead letter')}")

    return ask


def _revoke(desk: Desk, given: Mapping[str, Any], meant: Revoked) -> str:
    running = f" ({len(meant.running)} running: {meant.if_running.value})" if meant.running else ""
    return f"Revoke {counted(meant.done, 'task')}{running} for good?"


def _purge(desk: Desk, given: Mapping[str, Any], meant: None) -> str:
    return f"Remove all messages of {', '.join(named_queues(desk.app, given.get('queues')))}?"


_AT_A_TERMINAL = {"seconds": None, "cursor": ""}

ACTS = (
    Operation(
        "replay_dead_letters",
        Bulk.replay,
        (Right.REPLAY,),
        "dead-letters/replay",
        (Command("dead-letters replay", preset=_AT_A_TERMINAL),),
        "bulk",
        is_act=True,
        asks=_of_letters("Replay {}?"),
        asks_with="all",
        noun="dead letter",
        verb="replayed",
        problems=(_UNKNOWN, _CONFLICT),
    ),
    Operation(
        "discard_dead_letters",
        Bulk.discard,
        (Right.DISCARD,),
        "dead-letters/discard",
        (Command("dead-letters discard", preset=_AT_A_TERMINAL),),
        "bulk",
        is_act=True,
        asks=_of_letters("Discard {} for good?"),
        noun="dead letter",
        verb="discarded",
        problems=(_UNKNOWN,),
    ),
    Operation(
        "revoke_tasks",
        Revocations.revoke,
        (Right.OPERATE,),
        "tasks/revoke",
        (Command("revoke"),),
        "revocations",
        is_act=True,
        asks=_revoke,
        noun="task",
        verb="revoked",
    ),
    Operation(
        "give_order",
        StopButton.give,
        (Right.OPERATE,),
        "orders/give",
        (
            Command(
                "pause",
                "Stop all workers from taking tasks of a queue until it is resumed; plain tasks "
                "wait, too.",
                {"kind": OrderKind.PAUSE, "object_id": None},
            ),
            Command(
                "strike",
                "Stop a task everywhere until it is resumed: new attempts wait.",
                {"kind": OrderKind.STRIKE},
            ),
            Command(
                "drain",
                "Let a worker finish what it runs and take nothing new until it is resumed.",
                {"kind": OrderKind.DRAIN, "object_id": None},
            ),
        ),
        "orders",
        is_act=True,
    ),
    Operation(
        "resume",
        StopButton.resume,
        (Right.OPERATE,),
        "orders/resume",
        (Command("resume"),),
        "orders",
        is_act=True,
        noun="order",
        problems=(_UNKNOWN,),
    ),
    Operation(
        "sweep",
        Desk.sweep,
        (Right.OPERATE,),
        "sweep",
        (Command("sweep", preset={"passes": MOST_PASSES_IN_A_ROW}),),
        is_act=True,
    ),
    Operation(
        "purge",
        purge,
        (Right.OPERATE,),
        commands=(Command("purge"),),
        of="app",
        is_act=True,
        asks=_purge,
    ),
    Operation(
        "release", release, (Right.OPERATE,), commands=(Command("release"),), of="app", is_act=True
    ),
)
