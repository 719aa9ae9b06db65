"""The operations that do something.  Each is noted in the audit."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from msgspec import UnsetType

from celery_reliable.contrib.django.api.answers import (
    Discarded,
    OrdersAnswer,
    ReplayedEdited,
    Swept,
)
from celery_reliable.contrib.django.api.declaring import Asked, Operation
from celery_reliable.contrib.django.api.parameters import (
    DiscardBody,
    MoveBody,
    NoBody,
    OneBody,
    OrderBody,
    ReplayBody,
    ReplayEditedBody,
    ReplayOneBody,
    ResumeBody,
    RevokeBody,
)
from celery_reliable.contrib.django.api.problems import Problem
from celery_reliable.operations import (
    CannotMove,
    Done,
    Moved,
    Order,
    Replayed,
    Revoked,
    Right,
    publish_edited,
)

__all__ = ["ACTS"]


def replay_dead_letters(asked: Asked) -> Done:
    """Return many dead letters to the back of their queues, the oldest first.

    Answers after some seconds at the latest.  Unless it is whole then, go on: the same body, with
    before and cursor of the answer.
    """
    body: ReplayBody = asked.body
    chosen = body.chosen()
    if body.dry_run:
        return asked.desk.bulk.count(chosen, limit=body.most, seconds=body.seconds)
    return asked.desk.bulk.replay(
        chosen,
        by=asked.by,
        rate=body.rate,
        limit=body.most,
        seconds=body.seconds,
        to_queue=body.to_queue,
        max_waiting=None if isinstance(body.max_waiting, UnsetType) else body.max_waiting,
    )


def discard_dead_letters(asked: Asked) -> Done:
    """Remove many dead letters for good, the oldest first; it goes on as a replay does."""
    body: DiscardBody = asked.body
    chosen = body.chosen()
    if body.dry_run:
        return asked.desk.bulk.count(chosen, limit=body.most, seconds=body.seconds)
    return asked.desk.bulk.discard(
        chosen,
        by=asked.by,
        rate=None if isinstance(body.rate, UnsetType) else body.rate,
        limit=body.most,
        seconds=body.seconds,
    )


def replay_dead_letter(asked: Asked) -> Replayed:
    """Return one dead letter to its queue, under its id, with its counters at zero."""
    body: ReplayOneBody = asked.body
    with asked.desk.noted("replay", asked.by, {"ids": [body.id], "to_queue": body.to_queue}):
        return asked.desk.letters.replay(body.id, to_queue=body.to_queue, by=asked.by)


def discard_dead_letter(asked: Asked) -> Discarded:
    """Remove one dead letter for good."""
    body: OneBody = asked.body
    with asked.desk.noted("discard", asked.by, {"ids": [body.id]}):
        asked.desk.letters.discard(body.id, by=asked.by)
    return {"task_id": body.id}


def replay_dead_letter_edited(asked: Asked) -> ReplayedEdited:
    """Publish one dead letter's task anew with other arguments, and discard the letter.

    The new task names its origin.  Repeated, it publishes no second one while the first lives.
    """
    body: ReplayEditedBody = asked.body
    given: dict[str, Any] = {
        name: value
        for name, value in (("args", body.args), ("kwargs", body.kwargs))
        if not isinstance(value, UnsetType)
    }
    if not given:
        raise Problem(
            HTTPStatus.BAD_REQUEST, "bad_parameter", "Give args, or kwargs, or both.", "args"
        )
    desk = asked.desk
    about = {"ids": [body.id], "to_queue": body.to_queue}
    with desk.noted("replay edited", asked.by, about) as outcome:
        new_id = publish_edited(
            desk.app, desk.letters, body.id, by=asked.by, to_queue=body.to_queue, **given
        )
        outcome.about["new_id"] = new_id
    return {"task_id": body.id, "new_task_id": new_id}


def revoke_tasks(asked: Asked) -> Revoked:
    """End tasks that live, for good: queued, parked or running.

    Dead letters are discarded instead.  May be repeated.
    """
    body: RevokeBody = asked.body
    return asked.desk.revocations.revoke(
        body.ids, by=asked.by, if_running=body.if_running, dry_run=body.dry_run
    )


def move_tasks(asked: Asked) -> Moved:
    """Say which workers may run tasks that live: queued, parked or running.

    What runs on a worker that may not run it is stopped there, which is no loss, and runs
    elsewhere.  May be repeated.
    """
    body: MoveBody = asked.body
    try:
        return asked.desk.moves.move(
            body.ids,
            body.workers,
            by=asked.by,
            prefer=body.prefer,
            dry_run=body.dry_run,
        )
    except CannotMove as exc:
        raise Problem(HTTPStatus.BAD_REQUEST, "bad_parameter", str(exc), "workers") from None


def give_order(asked: Asked) -> Order:
    """Pause a queue, strike a task, or drain a worker.

    Every worker obeys within three seconds, and so do those that start later.  Nothing is lost.
    """
    body: OrderBody = asked.body
    return asked.desk.orders.give(
        body.kind,
        body.target,
        by=asked.by,
        why=body.why,
        object_id=None if isinstance(body.object_id, UnsetType) else body.object_id,
        for_seconds=None if isinstance(body.for_seconds, UnsetType) else body.for_seconds,
        stop=body.stop,
        later=body.later,
    )


def resume(asked: Asked) -> OrdersAnswer:
    """End orders, and answer which.

    What they have parked comes back in the order of publication.
    """
    body: ResumeBody = asked.body
    ended = asked.desk.orders.resume(body.order, by=asked.by)
    return {"items": [*ended]}


def sweep(asked: Asked) -> Swept:
    """Run a pass of the sweeper now, unless one runs or has just finished.

    Workers run passes by themselves; this is for when none lives.
    """
    report = asked.desk.sweep(asked.by, most_passes=1)
    return {"ran": report is not None, "report": report.as_dict() if report else None}


_REPLAY, _DISCARD, _OPERATE = (Right.REPLAY,), (Right.DISCARD,), (Right.OPERATE,)

ACTS = (
    Operation(
        "POST",
        "dead-letters/replay",
        replay_dead_letters,
        Done,
        needs=_REPLAY,
        body=ReplayBody,
        problems=(404, 409),
    ),
    Operation(
        "POST",
        "dead-letters/discard",
        discard_dead_letters,
        Done,
        needs=_DISCARD,
        body=DiscardBody,
        problems=(404,),
    ),
    Operation(
        "POST",
        "dead-letter/replay",
        replay_dead_letter,
        Replayed,
        needs=_REPLAY,
        body=ReplayOneBody,
        problems=(404, 409),
    ),
    Operation(
        "POST",
        "dead-letter/discard",
        discard_dead_letter,
        Discarded,
        needs=_DISCARD,
        body=OneBody,
        problems=(404,),
    ),
    Operation(
        "POST",
        "dead-letter/replay-edited",
        replay_dead_letter_edited,
        ReplayedEdited,
        needs=(Right.REPLAY, Right.SEE_ARGUMENTS),
        body=ReplayEditedBody,
        problems=(404, 409),
    ),
    Operation("POST", "tasks/revoke", revoke_tasks, Revoked, needs=_OPERATE, body=RevokeBody),
    Operation("POST", "tasks/move", move_tasks, Moved, needs=_OPERATE, body=MoveBody),
    Operation("POST", "orders/give", give_order, Order, needs=_OPERATE, body=OrderBody),
    Operation(
        "POST",
        "orders/resume",
        resume,
        OrdersAnswer,
        needs=_OPERATE,
        body=ResumeBody,
        problems=(404,),
    ),
    Operation("POST", "sweep", sweep, Swept, needs=_OPERATE, body=NoBody),
)
