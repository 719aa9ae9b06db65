"""Messages as operators look at them: read without running what their senders put into them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery import Celery

from celery_reliable.message import Envelope, seconds_until
from celery_reliable.model import DeadLetter, Record
from celery_reliable.options import NAMING, call_of, key_of

__all__ = [
    "REDACTED",
    "arguments_of",
    "envelope_of",
    "has_eta",
    "message_view",
    "object_of",
    "printable",
    "queue_of",
    "told_by",
]

#: Pickle is not among them: whoever reads a pickle runs what its sender put into it.
_READ_FORMATS = ("json", "msgpack", "yaml")


#: Stands where a view keeps arguments to itself.
REDACTED = "(redacted)"

#: The headers that Celery and we write ourselves, without the two that repeat the arguments.  Any
#: other header is a producer's own, and what it says nobody here can know.
_SHOWN_HEADERS = frozenset(
    {
        "compression",
        "eta",
        "expires",
        "group",
        "group_index",
        "id",
        "ignore_result",
        "lang",
        "origin",
        "parent_id",
        "reliable",
        "reliable_heir",
        "replaced_task_nesting",
        "retries",
        "root_id",
        "shadow",
        "stamped_headers",
        "task",
        "timelimit",
    }
)

#: The properties that Celery and kombu write.  Any other option of a call is a property, too.
_SHOWN_PROPERTIES = frozenset(
    {
        "body_encoding",
        "correlation_id",
        "delivery_info",
        "delivery_mode",
        "delivery_tag",
        "expiration",
        "priority",
        "reply_to",
    }
)


def envelope_of(stored: DeadLetter | Record) -> Envelope | None:
    """Return the message of a task or of a dead letter; None if nobody can read it."""
    try:
        return Envelope.from_text(stored.message)
    except ValueError:
        return None


def queue_of(envelope: Envelope | None) -> str:
    """Return the queue that a message was sent to; empty where it cannot be told.

    Most messages name theirs.  Where an exchange leads to only the broker knows.
    """
    return (envelope.routing_key or envelope.exchange) if envelope else ""


def arguments_of(envelope: Envelope) -> tuple[Any, Any, Any]:
    """Return args, kwargs and embedded signatures.  Raises whatever decoding raises, also for a
    format that is not read here.
    """
    args, kwargs, embed = envelope.decoded(_READ_FORMATS)
    return args, kwargs, embed


def has_eta(envelope: Envelope | None) -> bool:
    """Whether the ETA of a message lies in the future."""
    try:
        return envelope is not None and bool(seconds_until(envelope.headers.get("eta")))
    except (ValueError, OverflowError):
        return False


def told_by(envelope: Envelope) -> dict[str, Any]:
    """Return what a task's message says of its publication."""
    priority = envelope.properties.get("priority")
    # An operator may have named other workers than the call since.
    call = {name: one for name, one in call_of(envelope.headers).items() if name not in NAMING}
    return {
        "publisher": str(envelope.headers.get("origin") or ""),
        "priority": priority if isinstance(priority, int) else 0,
        "call": call,
    }


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


def message_view(stored: Record, *, with_arguments: bool = False) -> dict[str, Any]:
    """Return what a task's message says, as plain JSON values.

    Without *with_arguments* whatever may repeat an argument is redacted: arguments, body, and every
    header and property that is not Celery's, kombu's or ours.
    """
    envelope = envelope_of(stored)
    args = kwargs = REDACTED
    body: Any = REDACTED
    if with_arguments:
        body = stored.message
        if envelope is not None:
            args, kwargs, body = _arguments_of(envelope)
    return {
        "args": args,
        "kwargs": kwargs,
        "headers": _shown(
            envelope.headers if envelope else {}, None if with_arguments else _SHOWN_HEADERS
        ),
        "body": body,
        "properties": _shown(
            envelope.properties if envelope else {}, None if with_arguments else _SHOWN_PROPERTIES
        ),
        "content_type": envelope.content_type if envelope else "",
    }


def _shown(found: Mapping[str, Any], harmless: frozenset[str] | None) -> dict[str, Any]:
    """Return *found* with all values redacted but the *harmless* ones; None: with all values."""
    return {
        name: _plain(value) if harmless is None or name in harmless else REDACTED
        for name, value in found.items()
    }


def _arguments_of(envelope: Envelope) -> tuple[Any, Any, Any]:
    """Return args, kwargs and body as far as they can be read without running anything."""
    try:
        args, kwargs, embed = arguments_of(envelope)
    except Exception:
        found = envelope.headers
        body = envelope.body.decode("utf-8", "backslashreplace")
        return found.get("argsrepr"), found.get("kwargsrepr"), printable(body, keeps="\n\t")
    return _plain(args), _plain(kwargs), _plain([args, kwargs, embed])


def _plain(value: Any) -> Any:
    """Return *value* as JSON has it; what JSON has not, as its repr."""
    try:
        return json.loads(json.dumps(value, default=repr))
    except (TypeError, ValueError):
        return repr(value)


def printable(text: str, *, keeps: str = "") -> str:
    """Return *text* on one line, with an escape for each character that a terminal would obey:
    anybody may have published it.  The characters that it *keeps* stay as they are.
    """
    return "".join(
        char if char.isprintable() or char in keeps else repr(char)[1:-1] for char in text
    )
