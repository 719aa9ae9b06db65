"""Dead letters as plain values for people: arguments are redacted unless they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from celery_reliable.ledger import Death, death_of, group_of
from celery_reliable.message import Envelope
from celery_reliable.model import DeadLetter, GroupOfLetters, Record
from celery_reliable.operations import shapes
from celery_reliable.operations.messages import arguments_of, envelope_of
from celery_reliable.operations.times import iso

__all__ = ["REDACTED", "arguments_view", "full_view", "group_view", "short_view"]

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
        "reliable_origin",
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


def short_view(letter: DeadLetter) -> shapes.DeadLetter:
    """Return what a list shows of a dead letter, as plain JSON values.  Times are ISO 8601, UTC."""
    envelope = envelope_of(letter)
    return {
        "task_id": letter.task_id,
        "name": letter.name,
        "reason": letter.reason.value,
        "exception": letter.exception,
        "cause": str(death_of(letter)),
        "group": group_of(letter).id,
        "attempts": letter.attempts,
        "losses": letter.losses,
        "published_at": iso(letter.published_ms),
        "buried_at": iso(letter.buried_ms),
        "queue": (envelope.routing_key or envelope.exchange) if envelope else "",
    }


def full_view(letter: DeadLetter, *, with_arguments: bool = False) -> shapes.DeadLetterInFull:
    """Return all that is known of a dead letter, as plain JSON values.

    Without *with_arguments* whatever may repeat an argument is redacted: arguments, body, and every
    header and property that is not Celery's, kombu's or ours.  The exception's text and traceback
    are always shown.
    """
    envelope = envelope_of(letter)
    view: shapes.DeadLetterInFull = {
        **short_view(letter),
        "death": _death_view(death_of(letter)),
        "traceback": letter.traceback,
        "history": [
            {
                "at": iso(entry.at_ms),
                "what": entry.what,
                "attempt": entry.attempt,
                "cause": entry.cause,
                "worker": entry.owner,
            }
            for entry in letter.history
        ],
        "args": REDACTED,
        "kwargs": REDACTED,
        "headers": {},
        "body": REDACTED,
        "properties": {},
        "content_type": "",
    }
    if envelope is None:
        if with_arguments:
            view["body"] = letter.message
        return view
    view["headers"] = _shown(envelope.headers, None if with_arguments else _SHOWN_HEADERS)
    view["properties"] = _shown(envelope.properties, None if with_arguments else _SHOWN_PROPERTIES)
    view["content_type"] = envelope.content_type
    if with_arguments:
        view["args"], view["kwargs"], view["body"] = _arguments_of(envelope)
    return view


def _shown(found: Mapping[str, Any], harmless: frozenset[str] | None) -> dict[str, Any]:
    """Return *found* with all values redacted but the *harmless* ones; None: with all values."""
    return {
        name: _plain(value) if harmless is None or name in harmless else REDACTED
        for name, value in found.items()
    }


def _death_view(death: Death) -> shapes.Killed | None:
    """Return what killed the last attempt; None where nothing did, or nobody knows."""
    if not death.cause:
        return None
    return {
        "cause": death.cause,
        "signal": death.signal,
        "exit_code": death.exit_code,
        "out_of_memory": death.is_out_of_memory,
        "pid": death.pid,
    }


def group_view(found: GroupOfLetters) -> shapes.Group:
    """Return a group as plain JSON values."""
    group = found.group
    return {
        "group": group.id,
        "count": found.count,
        "task": group.task,
        "reason": group.reason,
        "cause": group.cause,
        "exception": group.exception,
        "first_at": iso(found.first_ms),
        "last_at": iso(found.last_ms),
        "example": found.example_id,
    }


def arguments_view(record: Record) -> dict[str, Any]:
    """Return args, kwargs and body of a task, as plain JSON values, unredacted: for whoever may see
    them.
    """
    envelope = envelope_of(record)
    if envelope is None:
        return {"args": None, "kwargs": None, "body": record.message}
    args, kwargs, body = _arguments_of(envelope)
    return {"args": args, "kwargs": kwargs, "body": body}


def _arguments_of(envelope: Envelope) -> tuple[Any, Any, Any]:
    """Return args, kwargs and body as far as they can be read without running anything."""
    try:
        args, kwargs, embed = arguments_of(envelope)
    except Exception:
        found = envelope.headers
        return found.get("argsrepr"), found.get("kwargsrepr"), "".join(_readable(envelope.body))
    return _plain(args), _plain(kwargs), _plain([args, kwargs, embed])


def _readable(data: bytes) -> Iterator[str]:
    for char in data.decode("utf-8", "backslashreplace"):
        yield char if char.isprintable() or char in "\n\t" else repr(char)[1:-1]


def _plain(value: Any) -> Any:
    """Return *value* as JSON has it; what JSON has not, as its repr."""
    try:
        return json.loads(json.dumps(value, default=repr))
    except (TypeError, ValueError):
        return repr(value)
