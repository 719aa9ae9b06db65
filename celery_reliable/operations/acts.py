"""What an operator can do.  Each act is noted in the audit, and may be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from celery import Celery

from celery_reliable.exceptions import ReliableError
from celery_reliable.model import SweepReport
from celery_reliable.operations.bulk import DEFAULT_RATE, Chosen
from celery_reliable.operations.catalog import Command, Items, Operation, Param, Progress, Right
from celery_reliable.operations.dead_letters import publish_edited
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.filters import EVERYTHING, Filter
from celery_reliable.operations.queues import Purged
from celery_reliable.operations.queues import purge as remove_messages
from celery_reliable.operations.uninstall import Released
from celery_reliable.operations.uninstall import release as give_back
from celery_reliable.operations.views import Done, IfRunning, Moved, Order, Revoked
from celery_reliable.operations.words import counted
from celery_reliable.orders import OrderKind
from celery_reliable.recovery import MOST_PASSES_IN_A_ROW

__all__ = [
    "ACTS",
    "NothingEdited",
    "ReplayedEdited",
    "Swept",
    "replay_dead_letter_edited",
]

_ID = Param(min_length=1, max_length=1000)
Id = Annotated[str, Param("Its id.", min_length=1, max_length=1000)]
#: Dead letters by their ids, or tasks.
LetterIds = Annotated[
    tuple[Annotated[str, _ID], ...],
    Param("By their ids.", most=1000, is_argument=True, metavar="[ID]..."),
]
TaskIds = Annotated[
    tuple[Annotated[str, _ID], ...],
    Param("Their ids.", min_length=1, most=500, is_argument=True, metavar="ID..."),
]
DryRun = Annotated[bool, Param("Only say what would become of them.")]
ToQueue = Annotated[str, Param("To this queue instead of their own.", max_length=255)]
Group = Annotated[str, Param("Only this group, by its id.", max_length=1000)]
All = Annotated[bool, Param("All that there are.")]
Most = Annotated[int | None, Param("At most so many.", ge=1)]
#: A person at a terminal interrupts an act instead.
Seconds = Annotated[float | None, Param("Answer after so long; one is done anyway.", ge=0, le=10)]
Before = Annotated[
    datetime | None,
    Param("Only those that were put aside before; to go on with what was cut."),
]
Cursor = Annotated[str, Param("Where an act with the same choice has ended.", max_length=10_000)]


class NothingEdited(ReliableError, ValueError):
    """Neither args nor kwargs were given."""


@dataclass(frozen=True)
class ReplayedEdited:
    """A dead letter that is discarded, and the task that is published in its place."""

    task_id: str
    new_task_id: str


@dataclass(frozen=True)
class Swept:
    """Whether a pass was run, and what it did."""

    ran: bool
    report: SweepReport | None


def replay_dead_letters(
    desk: Desk,
    by: str,
    *,
    ids: LetterIds = (),
    all_: All = False,
    group: Group = "",
    filter_: Filter = EVERYTHING,
    dry_run: DryRun = False,
    rate: Annotated[float, Param("So many a second.", ge=0.01, le=100_000)] = DEFAULT_RATE,
    limit: Most = None,
    seconds: Seconds = 10.0,
    before: Before = None,
    cursor: Cursor = "",
    to_queue: ToQueue = "",
    progress: Progress | None = None,
) -> Done:
    """Return many dead letters to the back of their queues, the oldest first.

    They keep their ids, and their budgets of losses and retries are fresh.  What is not whole is
    continued by the same call with before and cursor of the answer.
    """
    chosen = Chosen.of(ids, group, filter_, is_all=all_, before=before, cursor=cursor)
    if dry_run:
        if to_queue:
            desk.letters.check_queue(to_queue)
        return desk.bulk.count(chosen, limit=limit, seconds=seconds)
    return desk.bulk.replay(
        chosen,
        by=by,
        rate=rate,
        limit=limit,
        seconds=seconds,
        to_queue=to_queue,
        progress=_reported(progress, limit),
    )


def discard_dead_letters(
    desk: Desk,
    by: str,
    *,
    ids: LetterIds = (),
    all_: All = False,
    group: Group = "",
    filter_: Filter = EVERYTHING,
    dry_run: DryRun = False,
    rate: Annotated[
        float | None, Param("So many a second.  Default: as it goes.", ge=0.01, le=100_000)
    ] = None,
    limit: Most = None,
    seconds: Seconds = 10.0,
    before: Before = None,
    cursor: Cursor = "",
    progress: Progress | None = None,
) -> Done:
    """Remove many dead letters for good, the oldest first.

    What is not whole is continued by the same call with before and cursor of the answer.
    """
    chosen = Chosen.of(ids, group, filter_, is_all=all_, before=before, cursor=cursor)
    if dry_run:
        return desk.bulk.count(chosen, limit=limit, seconds=seconds)
    return desk.bulk.discard(
        chosen,
        by=by,
        rate=rate,
        limit=limit,
        seconds=seconds,
        progress=_reported(progress, limit),
    )


def _reported(progress: Progress | None, limit: int | None) -> Any:
    """Return what reports each letter; `before` leads on, and takes nothing twice."""
    if progress is None:
        return None

    def report(done: Done) -> None:
        more: dict[str, Any] = {"before": done.before}
        if limit is not None:
            more["limit"] = max(1, limit - done.done)
        progress(done.done + done.gone + done.failed, more)

    return report


def replay_dead_letter_edited(
    desk: Desk,
    by: str,
    *,
    id_: Id,
    to_queue: ToQueue = "",
    args: Annotated[list[Any] | None, Param("Run it anew with these arguments (a list).")] = None,
    kwargs: Annotated[dict[str, Any] | None, Param("The same by name (an object).")] = None,
) -> ReplayedEdited:
    """Publish one dead letter's task anew with other arguments, and discard the letter.

    The new task names its origin.  Repeated, it publishes no second one while the first lives.
    """
    if args is None and kwargs is None:
        raise NothingEdited("Give args, or kwargs, or both.")
    with desk.noted("replay edited", by, {"ids": [id_], "to_queue": to_queue}) as outcome:
        new_id = publish_edited(
            desk.app, desk.letters, id_, by=by, to_queue=to_queue, args=args, kwargs=kwargs
        )
        outcome.about["new_id"] = new_id
    return ReplayedEdited(id_, new_id)


def revoke_tasks(
    desk: Desk,
    by: str,
    *,
    ids: TaskIds,
    if_running: Annotated[
        IfRunning, Param("What runs is stopped (SIGTERM), killed (SIGKILL), or may finish.")
    ] = IfRunning.STOP,
    dry_run: DryRun = False,
    progress: Progress | None = None,
) -> Revoked:
    """End tasks that live, for good: queued, parked or running.

    Their result is REVOKED.  Dead letters are discarded instead.
    """
    return desk.revocations.revoke(
        ids, by=by, if_running=if_running, dry_run=dry_run, progress=_counted(progress)
    )


def move_tasks(
    desk: Desk,
    by: str,
    *,
    ids: TaskIds,
    workers: Annotated[
        tuple[str, ...],
        Param(
            "Only workers whose names fit these patterns; '*' is any that consumes its own queue.",
            most=100,
        ),
    ],
    prefer: Annotated[tuple[str, ...], Param("Workers that are to get it first.", most=100)] = (),
    dry_run: DryRun = False,
    progress: Progress | None = None,
) -> Moved:
    """Say which workers may run tasks that live: queued, parked or running.

    What runs on a worker that may not run it is stopped there, and runs elsewhere; it is no loss.
    """
    return desk.moves.move(
        ids, workers, by=by, prefer=prefer, dry_run=dry_run, progress=_counted(progress)
    )


def _counted(progress: Progress | None) -> Any:
    """Return what reports how many tasks are done with; the same ids again lead on."""
    return (lambda count: None) if progress is None else (lambda count: progress(count, {}))


def give_order(
    desk: Desk,
    by: str,
    *,
    kind: Annotated[
        OrderKind, Param("What is stopped: a queue (pause), a task (strike), a worker (drain).")
    ],
    target: Annotated[
        str,
        Param(
            "Its name, or a pattern of the shell.",
            min_length=1,
            max_length=500,
            is_argument=True,
            metavar="NAME",
        ),
    ],
    object_id: Annotated[
        str | None,
        Param("Only what is about the object with this id.", max_length=500, option="--object"),
    ] = None,
    why: Annotated[str, Param("Why: others will ask.", max_length=500, option="--reason")] = "",
    for_seconds: Annotated[
        float | None,
        Param(
            "End it after so long. Without this it holds until it is resumed.",
            gt=0,
            le=3e7,
            is_duration=True,
        ),
    ] = None,
    stop: Annotated[
        bool, Param("Stop what runs there, too, in prefork pools (others cannot); it runs again.")
    ] = False,
    later: Annotated[
        bool, Param("Also for a queue, task or worker that nobody knows yet.")
    ] = False,
) -> Order:
    """Pause a queue, strike a task, or drain a worker.

    Every worker obeys within three seconds, and so do those that start later.  Nothing is lost.
    """
    return desk.orders.give(
        kind,
        target,
        by=by,
        why=why,
        object_id=object_id,
        for_seconds=for_seconds,
        stop=stop,
        later=later,
    )


def resume(
    desk: Desk,
    by: str,
    *,
    orders: Annotated[
        tuple[Annotated[str, Param(min_length=1, max_length=500)], ...],
        Param(
            "Their ids, or the queues, tasks or workers that they name.",
            min_length=1,
            most=100,
            is_argument=True,
            metavar="ORDER...",
        ),
    ],
) -> Items[Order]:
    """End orders: each by its id, or by the queue, task or worker that it names.

    What they have parked comes back in the order of publication.
    """
    return Items(desk.orders.resume(*orders, by=by))


def sweep(
    desk: Desk,
    by: str,
    *,
    passes: Annotated[
        int,
        Param(
            "Passes that follow one another while there is more to do.",
            ge=1,
            le=MOST_PASSES_IN_A_ROW,
        ),
    ] = 1,
) -> Swept:
    """Run a pass of the sweeper now, unless one runs or has just finished.

    Workers run passes by themselves; this is for when none lives.
    """
    report = desk.sweep(by, most_passes=passes)
    return Swept(report is not None, report)


def purge(
    app: Celery,
    *,
    queues: Annotated[
        tuple[str, ...],
        Param("Only these, with commas between. Default: all.", option="-Q --queues"),
    ] = (),
) -> Purged:
    """Empty queues for good: without it, what `celery purge` removed would be sent again.

    What workers have fetched already still runs, and parked tasks stay parked: revoke those.
    """
    return remove_messages(app, _queues(app, queues))


def release(app: Celery) -> Released:
    """Give back what only workers with the package can see: before it is uninstalled.

    Messages of stopped workers return to their queues, and parked tasks are sent, their ETA intact.
    What names workers goes to the queue that it would have without that.
    """
    return give_back(app)


def _replay_many(desk: Desk, given: Mapping[str, Any], meant: Done) -> str:
    return f"Replay {_so_many(meant)}?"


def _discard_many(desk: Desk, given: Mapping[str, Any], meant: Done) -> str:
    return f"Discard {_so_many(meant)} for good?"


def _so_many(meant: Done) -> str:
    at_least = "" if meant.is_whole else "at least "
    return f"{at_least}{counted(meant.done, 'dead letter')}"


def _revoke(desk: Desk, given: Mapping[str, Any], meant: Revoked) -> str:
    how = meant.if_running.value
    running = f" ({len(meant.running)} running: {how})" if meant.running else ""
    return f"Revoke {counted(meant.done, 'task')}{running} for good?"


def _purge(app: Celery, given: Mapping[str, Any], meant: None) -> str:
    return f"Remove all messages of {', '.join(_queues(app, given.get('queues', ())))}?"


def _queues(app: Celery, given: Iterable[str]) -> list[str]:
    names = [name.strip() for one in given for name in one.split(",")]
    return list(filter(None, names)) or sorted(app.amqp.queues)


_AT_A_TERMINAL = {"seconds": None, "cursor": ""}
_UNKNOWN, _CONFLICT = 404, 409

ACTS = (
    Operation(
        replay_dead_letters,
        (Right.REPLAY,),
        "dead-letters/replay",
        (
            Command(
                "dead-letters replay",
                "Return dead letters to the back of their queues: by ID, a group, those that fit, "
                "or all.\n\nThey keep their ids, and their budgets of losses and retries are "
                "fresh.  May be interrupted and repeated: what was replayed is no dead letter any "
                "more.",
                _AT_A_TERMINAL,
            ),
        ),
        is_act=True,
        asks=_replay_many,
        asks_with="all",
        noun="dead letter",
        verb="replayed",
        problems=(_UNKNOWN, _CONFLICT),
    ),
    Operation(
        discard_dead_letters,
        (Right.DISCARD,),
        "dead-letters/discard",
        (
            Command(
                "dead-letters discard",
                "Remove dead letters for good: by ID, a group, those that fit, or all.",
                _AT_A_TERMINAL,
            ),
        ),
        is_act=True,
        asks=_discard_many,
        noun="dead letter",
        verb="discarded",
        problems=(_UNKNOWN,),
    ),
    Operation(
        replay_dead_letter_edited,
        (Right.REPLAY, Right.SEE_ARGUMENTS),
        "dead-letter/replay-edited",
        (Command("dead-letters replay"),),
        is_act=True,
        noun="dead letter",
        verb="replayed",
        problems=(_UNKNOWN, _CONFLICT),
    ),
    Operation(
        revoke_tasks,
        (Right.OPERATE,),
        "tasks/revoke",
        (Command("revoke"),),
        is_act=True,
        asks=_revoke,
        noun="task",
        verb="revoked",
    ),
    Operation(
        move_tasks,
        (Right.OPERATE,),
        "tasks/move",
        (Command("move"),),
        is_act=True,
        noun="task",
        verb="moved",
    ),
    Operation(
        give_order,
        (Right.OPERATE,),
        "orders/give",
        (
            Command(
                "pause",
                "Let nobody take from a queue until it is resumed; plain tasks, too.",
                {"kind": OrderKind.PAUSE, "object_id": None},
            ),
            Command(
                "strike",
                "Let no attempt of a task begin until it is resumed: what would begin is parked.",
                {"kind": OrderKind.STRIKE},
            ),
            Command(
                "drain",
                "Let a worker finish what it runs and take nothing new until it is resumed.",
                {"kind": OrderKind.DRAIN, "object_id": None},
            ),
        ),
        is_act=True,
    ),
    Operation(
        resume,
        (Right.OPERATE,),
        "orders/resume",
        (Command("resume"),),
        is_act=True,
        noun="order",
        problems=(_UNKNOWN,),
    ),
    Operation(
        sweep,
        (Right.OPERATE,),
        "sweep",
        (Command("sweep", preset={"passes": MOST_PASSES_IN_A_ROW}),),
        is_act=True,
    ),
    Operation(
        purge,
        (Right.OPERATE,),
        commands=(Command("purge", yes=("-f", "--force")),),
        is_act=True,
        asks=_purge,
    ),
    Operation(release, (Right.OPERATE,), commands=(Command("release"),), is_act=True),
)
