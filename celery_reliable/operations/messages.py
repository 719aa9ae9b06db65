"""Messages as operators look at them: read without running what their senders put into them."""

from __future__ import annotations

from typing import Any

from celery import Celery

from celery_reliable.message import Envelope
from celery_reliable.model import DeadLetter, Record
from celery_reliable.options import key_of

__all__ = ["ORIGIN", "arguments_of", "envelope_of", "object_of", "publisher_of"]

#: The header that names the dead letter which a task was made of.
ORIGIN = "reliable_origin"

#: Pickle is not among them: whoever reads a pickle runs what its sender put into it.
_READ_FORMATS = ("json", "msgpack", "yaml")


def envelope_of(stored: DeadLetter | Record) -> Envelope | None:
    """Return the message of a task or of a dead letter; None if nobody can read it."""
    try:
        return Envelope.from_text(stored.message)
    except ValueError:
        return None


def publisher_of(envelope: Envelope) -> str:
    """Return who published a message, and in place of which dead letter; empty where unknown."""
    publisher = str(envelope.headers.get("origin") or "")
    letter = envelope.headers.get(ORIGIN)
    return f"{publisher}, in place of {letter}" if letter else publisher


def arguments_of(envelope: Envelope) -> tuple[Any, Any, Any]:
    """Return args, kwargs and embedded signatures.  Raises whatever decoding raises, also for a
    format that is not read here.
    """
    args, kwargs, embed = envelope.decoded(_READ_FORMATS)
    return args, kwargs, embed


def object_of(app: Celery, envelope: Envelope) -> str:
    """Return the object that a task is about; empty if its arguments do not tell.

    Of the project's code only the task's own ``object_id`` runs.
    """
    task = app.tasks.get(envelope.task_name)
    if task is None:
        return ""
    try:
        args, kwargs, _ = arguments_of(envelope)
        return key_of(task, args, kwargs) or ""
    except Exception:
        # Decoding may raise anything, and so may a callable of the project's.
        return ""
