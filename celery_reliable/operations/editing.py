"""A dead letter run again with other arguments: as a new task, which names its origin."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery

from celery_reliable.message import Envelope
from celery_reliable.model import DeadLetter
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters
from celery_reliable.operations.messages import arguments_of, envelope_of

__all__ = ["ORIGIN", "publish_edited"]

#: The header that names the dead letter which a task was made of.
ORIGIN = "reliable_origin"


def publish_edited(
    app: Celery,
    letters: DeadLetters,
    task_id: str,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    to_queue: str = "",
) -> str:
    """Publish a dead letter's task anew, with *args* or *kwargs* in place of its own, and discard
    the letter when that is recorded; return the new task's id.

    Links and chain go with it; a chord, which has been told that its member failed, does not.  The
    new id is made of the letter and the arguments: repeated after an interruption, this publishes
    no second task while the first lives.

    Raises:
        UnknownDeadLetter: there is none with this id (any more).
        CannotReplay: the task is not known here, or its message cannot be read.
        NotPublished, PublishUnknown: as by any publication; the letter is there still.
    """
    letter = letters.get(task_id)
    envelope = envelope_of(letter)
    task = app.tasks.get(letter.name)
    if envelope is None or task is None:
        raise CannotReplay(
            f"The task {letter.name!r} of the dead letter {task_id!r} is not known to this app, or "
            "its message cannot be read: publish what was meant by it, and discard it."
        )
    try:
        old_args, old_kwargs, embed = arguments_of(envelope)
    except Exception as exc:
        raise CannotReplay(
            f"The message of {task_id!r} is not one that can be read without running what is in "
            f"it ({type(exc).__name__}): publish what was meant by it, and discard it."
        ) from exc
    new_args = list(old_args if args is None else args)
    new_kwargs = dict(old_kwargs if kwargs is None else kwargs)
    result = task.apply_async(
        new_args,
        new_kwargs,
        task_id=_new_id(letter, new_args, new_kwargs),
        headers={ORIGIN: task_id},
        link=embed.get("callbacks"),
        link_error=embed.get("errbacks"),
        chain=embed.get("chain"),
        priority=envelope.properties.get("priority"),
        **_place(app, envelope, to_queue, letters),
    )
    letters.discard_seen(letter)
    return str(result.id)


def _new_id(letter: DeadLetter, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    meant = json.dumps(
        [letter.task_id, letter.buried_ms, args, kwargs], sort_keys=True, default=repr
    )
    return str(uuid.uuid5(uuid.NAMESPACE_OID, meant.encode("utf-8", "backslashreplace").hex()))


def _place(app: Celery, envelope: Envelope, to_queue: str, letters: DeadLetters) -> dict[str, Any]:
    if to_queue:
        letters.check_queue(to_queue)
        return {"queue": to_queue}
    if envelope.exchange:
        return {"exchange": envelope.exchange, "routing_key": envelope.routing_key}
    return {"queue": envelope.routing_key} if envelope.routing_key else {}
