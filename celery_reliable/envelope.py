"""A message as it was sent, in a form that can be stored and sent again."""

from __future__ import annotations

import base64
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from kombu.compression import compress, decompress
from kombu.serialization import dumps as serialize
from kombu.serialization import loads as deserialize
from kombu.serialization import prepare_accept_content, registry
from kombu.utils.json import dumps, loads

from celery_reliable import events

__all__ = [
    "HEADER",
    "HEIR",
    "Envelope",
    "Stamp",
    "Wire",
    "as_published",
    "as_sent",
    "check_delivered",
    "expiration_seconds",
    "from_request",
    "new_epoch",
    "prepared",
    "seconds_until",
    "text_as_sent",
]

#: The header by which our messages are known: "<generation>:<epoch>".
HEADER = "reliable"

#: The header of a canvas's members: the replacement that they are part of.
HEIR = "reliable_heir"

#: A time in ms.  Others write messages too; what of it is believed, the ledger says.
_GENERATION = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True)
class Stamp:
    """What our header says of a message; both empty for a message that has none."""

    generation: str = ""
    epoch: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, Any] | None) -> Stamp:
        """Read the stamp from a message's headers."""
        value = (headers or {}).get(HEADER)
        if not isinstance(value, str) or ":" not in value:
            return cls()
        generation, _, epoch = value.partition(":")
        return cls(generation, epoch) if _GENERATION.fullmatch(generation) else cls()

    @property
    def attempt(self) -> int:
        """The attempt that published the message; 0 for anybody else, and for a strange epoch."""
        number = self.epoch.partition("-")[0][:_MOST_DIGITS]
        return int(number) if number.isdecimal() else 0

    def __str__(self) -> str:
        return f"{self.generation}:{self.epoch}"


#: More are no attempt's.
_MOST_DIGITS = 15


def new_epoch(attempt: int) -> str:
    """Return the name of one publication: the attempt that makes it (0: none) and a nonce.

    The nonce tells apart two publications that no attempt made, as of an id that a replaced task
    left behind.
    """
    return f"{attempt}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class Envelope:
    """One message: what `kombu.Producer.publish` was given, after serializing and compressing."""

    body: bytes
    content_type: str
    content_encoding: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    exchange: str
    routing_key: str

    def to_text(self) -> str:
        """Return the message as JSON text, as kombu's virtual transports write it into a queue."""
        properties = dict(self.properties)
        if "expiration" in properties:
            properties["expiration"] = str(int(properties["expiration"] * 1000))
        properties["delivery_info"] = {
            "exchange": self.exchange,
            "routing_key": self.routing_key,
        }
        try:
            body = self.body.decode("utf-8")
        except UnicodeDecodeError:
            body = base64.b64encode(self.body).decode("ascii")
            properties["body_encoding"] = "base64"
        fields = {
            "body": body,
            "content-type": self.content_type,
            "content-encoding": self.content_encoding,
            "headers": dict(self.headers),
            "properties": properties,
        }
        return str(dumps(fields))

    @classmethod
    def from_text(cls, text: str) -> Envelope:
        """Read what `to_text` wrote.  Raises ValueError or KeyError for anything else."""
        return cls.from_payload(loads(text))

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], queue: str | None = None) -> Envelope:
        """Return a message as kombu's virtual transports keep it, sent to *queue* if it is given,
        else to where it was sent.
        """
        properties = dict(payload["properties"])
        body = payload["body"].encode("utf-8")
        if properties.pop("body_encoding", "") == "base64":
            body = base64.b64decode(body)
        delivery = properties.pop("delivery_info", None) or {}
        for name in ("delivery_tag", "delivery_mode"):
            properties.pop(name, None)
        expiration = expiration_seconds(properties.pop("expiration", None))
        if expiration is not None:
            properties["expiration"] = expiration
        return cls(
            body,
            payload.get("content-type") or "application/data",
            payload.get("content-encoding") or "binary",
            payload.get("headers") or {},
            properties,
            (delivery.get("exchange") or "") if queue is None else "",
            (delivery.get("routing_key") or "") if queue is None else queue,
        )

    def stamped(self, stamp: Stamp, **headers: Any) -> Envelope:
        """Return this message under another stamp, with *headers* replaced."""
        return replace(self, headers={**self.headers, **headers, HEADER: str(stamp)})

    def decoded(self, accept: Iterable[str]) -> tuple[Any, Any, Any]:
        """Return the body: args, kwargs and what Celery embeds.

        Raises what kombu raises for a body it cannot read, or whose format is not in *accept*.
        """
        body = self.body
        if self.headers.get("compression"):
            body = decompress(body, self.headers["compression"])
        args, kwargs, embed = deserialize(
            body, self.content_type, self.content_encoding, accept=prepare_accept_content(accept)
        )
        return args, kwargs, embed

    @property
    def task_id(self) -> str:
        """The task's id; empty when the message has none."""
        return str(self.headers.get("id") or "")

    @property
    def task_name(self) -> str:
        """The task's name; empty when the message has none."""
        return str(self.headers.get("task") or "")


class Wire:
    """A body as it is sent."""

    __slots__ = ("body", "content_encoding", "content_type")

    def __init__(self, body: bytes, content_type: str, content_encoding: str) -> None:
        self.body = body
        self.content_type = content_type
        self.content_encoding = content_encoding


def prepared(producer: Any, body: Any, options: dict[str, Any]) -> tuple[Wire, dict[str, Any]]:
    """Serialize and compress once, so that what is stored is what is sent."""
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
    return Wire(data, content_type, content_encoding), options


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


def as_published(wire: Wire, options: dict[str, Any]) -> Envelope:
    """Return the message that `Producer.publish` would send with *options*."""
    exchange = options.get("exchange") or ""
    return Envelope(
        body=wire.body,
        content_type=wire.content_type,
        content_encoding=wire.content_encoding,
        headers=options["headers"],
        properties={k: v for k, v in options.items() if k not in _NOT_PROPERTIES and v is not None},
        exchange=getattr(exchange, "name", exchange),
        routing_key=options.get("routing_key") or "",
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


def from_request(request: Mapping[str, Any], args: Any, kwargs: Any, serializer: str) -> Envelope:
    """Return the message that a request was made of, as near as its process can see it.

    The body is serialized anew; headers of the sender's own are kept.
    """
    embed = {key: request.get(key) for key in ("callbacks", "errbacks", "chain", "chord")}
    content_type, encoding, body = serialize((args, kwargs, embed), serializer=serializer)
    headers = {key: request.get(key) for key in _HEADERS}
    headers.update(request.get("headers") or {})
    if request.get(HEADER):
        headers[HEADER] = request[HEADER]
    delivery = request.get("delivery_info") or {}
    properties = {key: request.get(key) for key in ("correlation_id", "reply_to")}
    if delivery.get("priority") is not None:
        properties["priority"] = delivery["priority"]
    return Envelope(
        body.encode("utf-8") if isinstance(body, str) else body,
        content_type,
        encoding,
        headers,
        properties,
        delivery.get("exchange") or "",
        delivery.get("routing_key") or "",
    )


def as_sent(message: Any) -> Envelope:
    """Return the envelope of a message that kombu has delivered."""
    delivery = message.delivery_info or {}
    properties = {
        key: value
        for key, value in (message.properties or {}).items()
        if key not in ("delivery_info", "delivery_tag", "body_encoding") and value is not None
    }
    if "expiration" in properties:
        # Stored in milliseconds as text; publishing takes seconds.
        seconds = expiration_seconds(properties.pop("expiration"))
        if seconds is not None:
            properties["expiration"] = seconds
    body = message.body
    headers = dict(message.headers or {})
    envelope = Envelope(
        body.encode("utf-8") if isinstance(body, str) else bytes(body),
        message.content_type,
        message.content_encoding,
        {k: v for k, v in headers.items() if k != "compression"},
        properties,
        delivery.get("exchange") or "",
        delivery.get("routing_key") or "",
    )
    return envelope if "task" in headers else _of_protocol_2(envelope, message)


def _of_protocol_2(envelope: Envelope, message: Any) -> Envelope:
    """Return a message of Celery's protocol 1, which has everything in its body, as one of protocol
    2, so that whoever buries, shows or replays it finds things where they look; others as they are.
    """
    try:
        told = message.payload
        name = registry.type_to_name[envelope.content_type]
    except Exception:
        # It is for the consumer to say so.
        return envelope
    if not isinstance(told, dict) or not isinstance(told.get("task"), str):
        return envelope
    headers = {key: told.get(key) for key in _HEADERS}
    headers["group"] = told.get("group") or told.get("taskset")
    embed = {key: told.get(key) for key in ("callbacks", "errbacks", "chain", "chord")}
    content_type, encoding, body = serialize(
        (told.get("args") or (), told.get("kwargs") or {}, embed), serializer=name
    )
    return replace(
        envelope,
        body=body.encode("utf-8") if isinstance(body, str) else body,
        content_type=content_type,
        content_encoding=encoding,
        headers={**headers, **envelope.headers},
    )


def text_as_sent(message: Any) -> str:
    """Return a delivered message as text to be stored; empty when it cannot be told.

    Others publish too: what a message contains must not end the worker that receives it.
    """
    try:
        return as_sent(message).to_text()
    except Exception as exc:
        events.message_not_kept_as_sent(error=exc)
        return ""


def check_delivered(message: Any) -> None:
    """Raise ValueError for a task's message that would end the worker which hands it to its pool,
    or that fails in its process before anybody has begun.
    """
    headers = message.headers
    if not isinstance(headers, dict) or "task" not in headers:
        return
    limits = headers.get("timelimit")
    if limits is not None and not (
        isinstance(limits, (list, tuple))
        and len(limits) == 2
        and all(one is None or type(one) in (int, float) for one in limits)
    ):
        raise ValueError(f"timelimit is {limits!r}: two numbers of seconds, or null for none")
    try:
        payload = message.payload
    except Exception:
        # It is for the consumer to say so.
        return
    # A mapping is of protocol 1 or of both.
    if isinstance(payload, (list, tuple)) and not (
        len(payload) == 3
        and isinstance(payload[0], (list, tuple))
        and isinstance(payload[1], dict)
        and isinstance(payload[2], (dict, type(None)))
    ):
        raise ValueError("the body is no list of arguments, keyword arguments and options")


def seconds_until(eta: object) -> float:
    """Return the seconds from now until *eta*, an ISO 8601 text of a message; 0 when there is none
    or it has passed.

    An ETA without a zone is UTC, as in Celery's messages.
    """
    if not eta:
        return 0.0
    moment = (
        eta
        if isinstance(eta, datetime)
        else datetime.fromisoformat(str(eta).replace("Z", "+00:00"))
    )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())


def expiration_seconds(milliseconds: Any) -> float | None:
    """Return the seconds that publishing takes, of the milliseconds that a message carries as text;
    None for what is no time.
    """
    try:
        seconds = float(milliseconds) / 1000
    except (OverflowError, TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) else None
