"""Messages as kombu and Celery have them on the wire: read and checked as they are delivered, and
converted into envelopes and back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from celery import Celery
from celery.app.task import Context
from kombu.compression import compress
from kombu.serialization import dumps as serialize
from kombu.utils.encoding import bytes_to_str, str_to_bytes
from kombu.utils.json import loads

from celery_reliable.log import logger
from celery_reliable.message.envelope import Envelope, address_of, properties_to_publish

__all__ = [
    "RETURNS",
    "as_published",
    "as_sent",
    "check_delivered",
    "check_limits",
    "context_of",
    "from_request",
    "headers_as_written",
    "id_as_text",
    "looks_used_once",
    "payload_of",
    "prepared",
    "returns_of",
    "task_id_of",
    "text_as_sent",
]

#: A random UUID as it is written (RFC 9562, version 4).
_RANDOM = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def looks_used_once(task_id: str) -> bool:
    """Whether an id has the form that Celery makes (a random UUID), for one task only."""
    return _RANDOM.fullmatch(task_id) is not None


def id_as_text(task_id: Any) -> str:
    """Return an id as its message and its record have it, where Celery accepts what is no text.

    Raises TypeError for what is neither a text nor a UUID.
    """
    if isinstance(task_id, str):
        # An enum's own text is its name, and JSON has its value.
        return str.__str__(task_id)
    if isinstance(task_id, UUID):
        return str(task_id)
    raise TypeError(f"task_id={task_id!r}: the id of a task is a text or a UUID")


#: The property of a message that came back from a dead worker.  It is 1, plus one for each death
#: that was charged to the message while no record counted that.
RETURNS = "reliable_returns"


def returns_of(payload: dict[str, Any]) -> int:
    """Return how often a message came back from a dead worker, as far as that was counted."""
    count = (payload.get("properties") or {}).get(RETURNS, 0)
    # Who counts down from somewhere would be returned without end.
    return count if type(count) is int and count > 0 else 0


def task_id_of(payload: dict[str, Any]) -> str:
    """Return the id of the task of a message; empty for what has none."""
    # Messages of Celery's protocol 1 have no headers; both have the id in the properties.
    properties = payload.get("properties") or {}
    return str((payload.get("headers") or {}).get("id") or properties.get("correlation_id") or "")


def payload_of(raw: bytes) -> Any:
    """Decode a list element.  Raises what decoding raises, and ValueError, KeyError or TypeError if
    it is not a message of kombu's.
    """
    payload = loads(bytes_to_str(raw))
    properties, headers = payload["properties"], payload.get("headers") or {}
    delivery = properties["delivery_info"]
    # Kombu would choke on anything else later, in the worker's main loop.  Celery uses the name of
    # the task as a key, so it must be hashable.
    if not (
        isinstance(properties, dict)
        and isinstance(delivery["exchange"], str)
        and isinstance(delivery["routing_key"], str)
        and isinstance(payload["body"], str)
        and isinstance(headers, dict)
        and isinstance(headers.get("task", ""), str)
    ):
        raise ValueError("a list element that is no message of kombu's")
    if "id" in headers:
        # A publisher without the package may send a UUID, which kombu writes and reads as one.
        headers["id"] = id_as_text(headers["id"])
    return payload


def headers_as_written(raw: bytes) -> dict[str, Any]:
    """Return the headers of a list element that `payload_of` cannot read, as plain JSON has them;
    none where that has none.
    """
    try:
        headers = json.loads(raw)["headers"]
    except Exception:
        # Whatever decoding raises.
        return {}
    return headers if isinstance(headers, dict) else {}


def check_limits(limits: Any) -> None:
    """Raise ValueError for time limits that would end the worker."""
    if limits is not None and not (
        isinstance(limits, (list, tuple))
        and len(limits) == 2
        # A bool is an int in Python; here it is a mistake.
        and all(type(one) in (int, float, type(None)) for one in limits)
    ):
        raise ValueError(f"timelimit is {limits!r}: two numbers of seconds, or null for none")


def check_delivered(message: Any) -> None:
    """Raise ValueError for a task's message that would end the worker as it hands it to its pool,
    or that would fail in the pool's process before the task begins.

    A UUID becomes its text.
    """
    headers = message.headers
    if not isinstance(headers, dict) or "task" not in headers:
        return
    if isinstance(headers.get("id"), UUID):
        headers["id"] = id_as_text(headers["id"])
    check_limits(headers.get("timelimit"))
    try:
        payload = message.payload
    except Exception:
        # The consumer reports what it cannot decode.
        return
    # A mapping is a body of protocol 1.
    if isinstance(payload, (list, tuple)) and not (
        len(payload) == 3
        and isinstance(payload[0], (list, tuple))
        and isinstance(payload[1], dict)
        and isinstance(payload[2], (dict, type(None)))
    ):
        raise ValueError("the body is no list of arguments, keyword arguments and options")


def prepared(producer: Any, body: Any, options: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Serialize and compress once, so that what is stored is what is sent: return the body, and the
    options by which a producer sends it as it is.
    """
    options = dict(options)
    content_type, content_encoding, data = serialize(
        body, serializer=options.pop("serializer", None) or "json"
    )
    if isinstance(data, str):
        data = data.encode(content_encoding if content_encoding != "binary" else "utf-8")
    compression = options.pop("compression", None) or getattr(producer, "compression", None)
    if compression:
        data, options["headers"]["compression"] = compress(data, compression)
    # An empty name keeps the producer from compressing a second time.
    options.update(content_type=content_type, content_encoding=content_encoding, compression="")
    return data, options


#: Options of `Producer.publish` that are about the sending, not part of the message.
_NOT_PROPERTIES = frozenset(
    {
        "content_type",
        "content_encoding",
        "compression",
        "headers",
        "exchange",
        "routing_key",
        "retry",
        "retry_policy",
        "declare",
        "timeout",
        "confirm_timeout",
        "mandatory",
        "immediate",
    }
)


def as_published(body: bytes, options: dict[str, Any]) -> Envelope:
    """Return the message that `Producer.publish` sends of what `prepared` has returned."""
    return Envelope(
        body,
        options["content_type"],
        options["content_encoding"],
        options["headers"],
        {k: v for k, v in options.items() if k not in _NOT_PROPERTIES and v is not None},
        *address_of(options),
    )


#: What Celery's protocol 2 keeps in a message's headers.
_HEADERS = (
    "lang",
    "task",
    "id",
    "shadow",
    "eta",
    "expires",
    "group",
    "group_index",
    "retries",
    "timelimit",
    "root_id",
    "parent_id",
    "argsrepr",
    "kwargsrepr",
    "origin",
    "ignore_result",
    "replaced_task_nesting",
    "stamped_headers",
    "stamps",
)
#: What it keeps in the body, beside the arguments.
_EMBEDDED = ("callbacks", "errbacks", "chain", "chord")


#: RabbitMQ's notes of where a message was dead-lettered: a new message that has them may be taken
#: for one that goes in a circle (https://www.rabbitmq.com/docs/dlx#automatic-dead-lettering-cycles).
_OF_A_BROKER = ("x-death", "x-first-death-", "x-last-death-")


def from_request(request: Mapping[str, Any], args: Any, kwargs: Any, serializer: str) -> Envelope:
    """Rebuild the message that a request was made of, from what its process knows.

    The body is serialized again.  Headers that the sender added are kept: Celery puts them beside
    what it tells of the request itself.  One of them may be called "headers": instrumentation has
    others there that a retry is to carry on.
    """
    embed = {key: request.get(key) for key in _EMBEDDED}
    content_type, encoding, body = serialize((args, kwargs, embed), serializer=serializer)
    headers = {key: request.get(key) for key in _HEADERS}
    inner = request.get("headers")
    beside = {key: value for key, value in request.items() if key != "headers"}
    if isinstance(inner, Mapping):
        headers.update(inner)
    headers.update(Context(beside).headers or {})
    if inner:
        headers["headers"] = inner
    headers = {k: v for k, v in headers.items() if not k.startswith(_OF_A_BROKER)}
    delivery = request.get("delivery_info") or {}
    properties = {key: request.get(key) for key in ("correlation_id", "reply_to")}
    if delivery.get("priority") is not None:
        properties["priority"] = delivery["priority"]
    return Envelope(
        str_to_bytes(body),
        content_type,
        encoding,
        headers,
        properties,
        *address_of(delivery),
    )


def as_sent(message: Any) -> Envelope:
    """Return the envelope of a message that kombu has delivered."""
    delivery = message.delivery_info or {}
    headers = dict(message.headers or {})
    return Envelope(
        bytes(str_to_bytes(message.body)),
        message.content_type,
        message.content_encoding,
        {k: v for k, v in headers.items() if k != "compression"},
        properties_to_publish(message.properties or {}),
        *address_of(delivery),
    )


def text_as_sent(message: Any) -> str:
    """Return a delivered message as text to be stored; empty if it cannot be converted.

    Never raises: anybody may publish anything, and that must not end the worker.
    """
    try:
        return as_sent(message).to_text()
    except Exception as exc:
        logger.warning("message_not_kept_as_sent error=%s", exc)
        return ""


def context_of(app: Celery, message: str, *, is_sealed: bool = False) -> Context:
    """Return the request that Celery would have made of a stored message.

    Arguments, callbacks and chord are missing if the body cannot be read, or if *is_sealed* says
    that it must not be read.
    """
    envelope = Envelope.from_text(message)
    fields: dict[str, Any] = dict(envelope.headers)
    fields.update(
        reply_to=envelope.properties.get("reply_to"),
        correlation_id=envelope.properties.get("correlation_id"),
        delivery_info={"exchange": envelope.exchange, "routing_key": envelope.routing_key},
    )
    if not is_sealed:
        try:
            args, kwargs, embed = envelope.decoded(app.conf.accept_content)
            fields.update(embed or {}, args=args, kwargs=kwargs)
        except Exception as exc:
            logger.warning("message_not_readable id=%s error=%s", envelope.task_id, exc)
    return Context(fields, called_directly=False)
