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
from celery_reliable.operations.messages import ORIGIN, arguments_of, envelope_of
from celery_reliable.options import CALL, call_of

__all__ = ["editable_arguments", "publish_edited"]


def publish_edited(
    app: Celery,
    letters: DeadLetters,
    task_id: str,
    *,
    by: str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    to_queue: str = "",
) -> str:
    """Publish a dead letter's task anew, with *args* or *kwargs* in place of its own, and discard
    the letter when that is recorded; return the new task's id.  What is kept of the letter names
    it, and who did it (*by*).

    Links and chain go with it; a chord, which has been told that its member failed, does not.  The
    new id is made of the letter and the arguments: repeated after an interruption, this publishes
    no second task while the first lives.

    Raises:
        UnknownDeadLetter: there is none with this id (any more).
        CannotReplay: the task is not known here, or its message cannot be read.
        NotPublished, PublishUnknown: as by any publication; the letter is there still.
    """
    letter = letters.get(task_id)
    task = app.tasks.get(letter.name)
    if task is None:
        raise CannotReplay(
            f"The task {letter.name!r} of the dead letter {task_id!r} is not known to this app: "
            "publish what was meant by it, and discard it."
        )
    envelope, old_args, old_kwargs, embed = _read(letter)
    new_args = list(old_args if args is None else args)
    new_kwargs = dict(old_kwargs if kwargs is None else kwargs)
    result = task.apply_async(
        new_args,
        new_kwargs,
        task_id=_new_id(letter, new_args, new_kwargs),
        headers={ORIGIN: task_id, **_call_in(envelope)},
        link=embed.get("callbacks"),
        link_error=embed.get("errbacks"),
        chain=embed.get("chain"),
        priority=envelope.properties.get("priority"),
        **_place(app, envelope, to_queue, letters),
    )
    letters.discard_seen(letter, by=f"{by}, who published {result.id} in its place")
    return str(result.id)


def editable_arguments(letter: DeadLetter) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments, which are the same after they went through JSON.

    Raises CannotReplay when they would not be (dates, bytes), or when nobody can read them.
    """
    _, args, kwargs, _ = _read(letter)
    found: tuple[list[Any], dict[str, Any]] = (list(args), dict(kwargs))
    try:
        is_json = json.loads(json.dumps(found)) == [*found]
    except (TypeError, ValueError, RecursionError):
        is_json = False
    if not is_json:
        raise CannotReplay(
            f"The arguments of {letter.task_id!r} hold what JSON has not (such as dates): publish "
            "what was meant by it, and discard it."
        )
    return found


def _read(letter: DeadLetter) -> tuple[Envelope, Any, Any, Any]:
    """Return a letter's message, and args, kwargs and embedded signatures in it."""
    envelope = envelope_of(letter)
    if envelope is None:
        raise CannotReplay(
            f"The message of the dead letter {letter.task_id!r} cannot be read: publish what was "
            "meant by it, and discard it."
        )
    try:
        return (envelope, *arguments_of(envelope))
    except Exception as exc:
        raise CannotReplay(
            f"The message of {letter.task_id!r} is not one that can be read without running what "
            f"is in it ({type(exc).__name__}): publish what was meant by it, and discard it."
        ) from exc


def _call_in(envelope: Envelope) -> dict[str, Any]:
    """Return the header of what the call said in place of its task's options, if it has one."""
    told = call_of(envelope.headers)
    return {CALL: dict(told)} if told else {}


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
