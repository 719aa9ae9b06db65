"""Envelopes made of messages and of requests, and requests made of envelopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery import Celery
from celery.app.task import Context
from kombu.compression import compress
from kombu.serialization import dumps as serialize
from kombu.serialization import registry
from kombu.utils.encoding import str_to_bytes

from celery_reliable.log import logger
from celery_reliable.message.envelope import Envelope, address_of, properties_to_publish

__all__ = [
    "as_published",
    "as_sent",
    "context_of",
    "from_request",
    "prepared",
    "text_as_sent",
]


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
    envelope = Envelope(
        bytes(str_to_bytes(message.body)),
        message.content_type,
        message.content_encoding,
        {k: v for k, v in headers.items() if k != "compression"},
        properties_to_publish(message.properties or {}),
        *address_of(delivery),
    )
    return envelope if "task" in headers else _of_protocol_2(envelope, message)


def _of_protocol_2(envelope: Envelope, message: Any) -> Envelope:
    """Return a message of Celery's protocol 1 converted to protocol 2, any other one unchanged.

    Protocol 1 has everything in the body, and dead letters are read by their headers.
    """
    try:
        told = message.payload
        name = registry.type_to_name[envelope.content_type]
    except Exception:
        # The consumer reports what it cannot decode.
        return envelope
    if not isinstance(told, dict) or not isinstance(told.get("task"), str):
        return envelope
    known = {key: told.get(key) for key in (*_HEADERS, *_EMBEDDED)}
    known["group"] = told.get("group") or told.get("taskset")
    made = from_request(known, told.get("args") or (), told.get("kwargs") or {}, name)
    return replace(
        envelope,
        body=made.body,
        content_type=made.content_type,
        content_encoding=made.content_encoding,
        headers={**made.headers, **envelope.headers},
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
