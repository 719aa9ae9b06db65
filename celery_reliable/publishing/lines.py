"""Those that wait in line for a place of an object: letting them through, one after the other."""

from __future__ import annotations

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.ledger import Ledger, Resent, answers
from celery_reliable.ledger.answers import PlaceAnswer
from celery_reliable.log import logger
from celery_reliable.message import Envelope, NamedWorkers, is_named
from celery_reliable.model import Due, Record
from celery_reliable.options import CALL, room_of
from celery_reliable.publishing.placement import placed
from celery_reliable.publishing.resending import send_stored

__all__ = ["let_through", "step_up"]

#: So many are let through by one process at one time at most; a pass goes on with the line.
_MOST = 100


def let_through(app: Celery, ledger: Ledger, object_key: str, first: str) -> None:
    """Have the *first* of a line take its place and send it, and so on while the object is free.

    Each of them is due, so what goes wrong here is only told: a pass does the same.
    """
    try:
        for _ in range(_MOST):
            record = ledger.find(first)
            if record is not None and isinstance(step_up(app, ledger, record), answers.Full):
                return
            first = ledger.next_in_line(object_key)
            if not first:
                return
    except Exception as exc:
        logger.warning("send_left_to_sweeper id=%s error=%s", first, exc)


def step_up(app: Celery, ledger: Ledger, record: Record) -> PlaceAnswer:
    """Let a task that stands in line take its place if it is its turn, and send it."""
    config, object_key = reliable_of(app).config, record.in_line_of
    task = app.tasks.get(record.name)
    # The task, or its call, says how many there are by now; without its code, how many there were.
    headers = Envelope.from_text(record.message).headers if CALL in record.message else None
    room = room_of(task, object_key, headers) if task is not None else None
    answer = ledger.step_up(
        object_key,
        room.places if room is not None else record.places or 1,
        record.task_id,
        record.epoch,
        due_in_ms=config.queued_ms,
    )
    if isinstance(answer, answers.Send):
        sent = _addressed(app, ledger, record, answer) if is_named(answer.message) else answer
        if sent is None:
            # A pass goes on with it.
            ledger.postpone(Due(record.task_id, answer.due_ms), due_in_ms=0, is_unsent=True)
        else:
            send_stored(app, ledger, record.task_id, sent, again_in_ms=config.sweep_ms)
    return answer


def _addressed(
    app: Celery, ledger: Ledger, record: Record, answer: answers.Send
) -> answers.Send | None:
    """Return what is to be sent of a task that names workers, to one of those that live.

    None where a pass has to see to it: none of them lives, or the task is a member of a run, for
    whose worker the pass answers.
    """
    reliable, envelope = reliable_of(app), Envelope.from_text(answer.message)
    named = NamedWorkers.of(envelope.headers)
    if named is None or named.run:
        return None
    place = placed(named, reliable.living.now())
    if place is None:
        return None
    sent = ledger.resend(
        Due(record.task_id, answer.due_ms),
        due_in_ms=reliable.config.queued_ms,
        message=Resent(place.readdressed(envelope).to_text(), record.epoch, record.epoch),
    )
    return sent if isinstance(sent, answers.Send) else None
