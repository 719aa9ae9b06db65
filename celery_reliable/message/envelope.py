"""A message as it was sent, in a form that can be stored and sent again; and our own headers: the
stamp by which a message is known, and which workers may run its task.

Nothing here knows which workers live.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from kombu.compression import decompress
from kombu.serialization import loads as deserialize
from kombu.serialization import prepare_accept_content
from kombu.utils.json import dumps, loads

from celery_reliable.leases import matches

__all__ = [
    "HEADER",
    "HEIR",
    "NAMED",
    "Envelope",
    "NamedWorkers",
    "Stamp",
    "address_of",
    "is_named",
    "new_epoch",
    "properties_to_publish",
    "seconds_until",
]

#: The header by which our messages are known: "<generation>:<epoch>:<digest of the task's id>".
#: It comes first where `take` may claim the task by what follows, its name and its id.
HEADER = "reliable"

#: The header of a canvas's members: the replacement that they are part of.
HEIR = "reliable_heir"

#: The generation is a time in ms.  Only its form is checked here; the ledger decides whether to
#: believe it.
_STAMP = re.compile(r"([0-9]{1,20}):(.*):([0-9a-f]{8})", re.DOTALL)

#: The header of a message that only some workers may run, or that some should run.
NAMED = "reliable_workers"


@dataclass(frozen=True)
class Stamp:
    """What our header says of a message; both empty for a message that has none.

    A header that was copied onto another id says nothing: of that id nobody has made a record.
    """

    generation: str = ""
    epoch: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, Any] | None) -> Stamp:
        """Read the stamp from a message's headers, which have its task's id, too."""
        value, task_id = (headers or {}).get(HEADER), (headers or {}).get("id")
        found = _STAMP.fullmatch(value) if isinstance(value, str) else None
        if found is None or not isinstance(task_id, str) or found[3] != _digest(task_id):
            return cls()
        return cls(found[1], found[2])

    @property
    def attempt(self) -> int:
        """The attempt that published the message; 0 if none did, or if the epoch is strange."""
        number = self.epoch.partition("-")[0][:_MOST_DIGITS]
        return int(number) if number.isdecimal() else 0

    def of_task(self, task_id: str) -> str:
        """Return the header of a message of this task."""
        return f"{self.generation}:{self.epoch}:{_digest(task_id)}"


def _digest(task_id: str) -> str:
    # `take` makes the same one.
    text = task_id.encode("utf-8", "surrogatepass")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()[:8]


#: No attempt's number is longer.
_MOST_DIGITS = 15


def new_epoch(attempt: int, following: str = "") -> str:
    """Return the name of one publication: the attempt that makes it (0: none) and a nonce.

    The nonce distinguishes publications that no attempt made, such as those of an id that a
    replaced task left behind.

    *following*: the epoch of the task's publication before it.  Who sent that is named on: a server
    that knows the sender's number has had the record, also after a restart.
    """
    sender = following.split("-", 2)[2:]
    return "-".join((str(attempt), secrets.token_hex(4), *sender))


def address_of(told: Mapping[str, Any]) -> tuple[str, str]:
    """Return exchange and routing key of a message that is published with these options, or was
    delivered with this `delivery_info`.
    """
    exchange = told.get("exchange") or ""
    return str(getattr(exchange, "name", exchange)), told.get("routing_key") or ""


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
        """Read what `to_text` wrote.  Raises ValueError for anything else."""
        try:
            return cls.from_payload(loads(text))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"not a stored message: {exc!r}") from exc

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], queue: str | None = None) -> Envelope:
        """Return a message as kombu's virtual transports keep it, sent to *queue* if it is given,
        else to where it was sent.
        """
        told, headers = dict(payload["properties"]), payload.get("headers") or {}
        if not isinstance(headers, Mapping):
            raise TypeError("its headers are no mapping")
        body = payload["body"].encode("utf-8")
        if told.get("body_encoding") == "base64":
            body = base64.b64decode(body)
        address = address_of(told.get("delivery_info") or {}) if queue is None else ("", queue)
        return cls(
            body,
            payload.get("content-type") or "application/data",
            payload.get("content-encoding") or "binary",
            headers,
            properties_to_publish(told),
            *address,
        )

    def stamped(self, stamp: Stamp, **headers: Any) -> Envelope:
        """Return this message under another stamp, with *headers* replaced."""
        stamped = {HEADER: stamp.of_task(self.task_id)}
        return replace(self, headers={**self.headers, **headers, **stamped})

    def published_anew(self, before: str, generation: str) -> tuple[Envelope, str]:
        """Return this message as another publication, and its epoch: what was sent before is stale.

        *before*: the epoch that the task has now.  *generation*: for a message that has none.
        """
        epoch = new_epoch(Stamp("", before).attempt, before)
        stamp = Stamp(Stamp.of(self.headers).generation or generation, epoch)
        return self.stamped(stamp), epoch

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


def seconds_until(eta: object) -> float:
    """Return the seconds from now until *eta*, an ISO 8601 text of a message or a datetime; 0 when
    there is none or it has passed.

    An ETA without a zone is UTC, as in Celery's messages.
    """
    if not eta:
        return 0.0
    moment = datetime.fromisoformat(str(eta).replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())


#: What a transport notes in the properties of a message.
_OF_DELIVERY = ("body_encoding", "delivery_info", "delivery_mode", "delivery_tag")


def properties_to_publish(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a delivered message as `Producer.publish` is given them."""
    found = {
        name: one for name, one in told.items() if name not in _OF_DELIVERY and one is not None
    }
    # It is stored in milliseconds as text; publishing takes seconds.  What is no time is left out.
    milliseconds = found.pop("expiration", None)
    with suppress(OverflowError, TypeError, ValueError):
        seconds = float(milliseconds) / 1000
        if math.isfinite(seconds):
            found["expiration"] = seconds
    return found


def is_named(message: str) -> bool:
    """Whether the text of a stored message can have the header; a cheap look before it is read."""
    return f'"{NAMED}"' in message


@dataclass(frozen=True)
class NamedWorkers:
    """Which workers may run a task, and which should.

    Attributes:
        only: patterns of which a worker's name must match one; none: any worker may run it.
        prefer: patterns of those that get it first, the first pattern's before the second's.
        home: exchange and routing key that it would have had without this.
        run: of which the task is a member; each of them runs on another worker.
        pin: the worker that the member has; no other may run it.
    """

    only: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    home: tuple[str, str] = ("", "")
    run: str = ""
    pin: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, Any] | None) -> NamedWorkers | None:
        """Read it from a message's headers; None of a message that any worker may run.

        What somebody else wrote there, and is not to be understood, allows no worker: whoever wrote
        it meant to forbid some.
        """
        told = (headers or {}).get(NAMED)
        if told is None:
            return None
        if not isinstance(told, Mapping):
            return cls(only=("",))
        home = _texts(told.get("home"))
        return cls(
            only=_texts(told.get("only")),
            prefer=_texts(told.get("prefer")),
            home=(home[0], home[1]) if len(home) == 2 else ("", ""),
            run=str(told.get("run") or ""),
            pin=str(told.get("pin") or ""),
        )

    @classmethod
    def from_text(cls, text: str) -> NamedWorkers:
        """Read what `to_text` wrote."""
        return cls.of({NAMED: json.loads(text)}) or cls(only=("",))

    def as_header(self) -> dict[str, Any]:
        """Return what `of` reads: what applies, as plain JSON values."""
        found: dict[str, Any] = {
            "only": [*self.only],
            "prefer": [*self.prefer],
            "home": [*self.home] if any(self.home) else [],
            "run": self.run,
            "pin": self.pin,
        }
        return {name: value for name, value in found.items() if value} or {"only": []}

    def to_text(self) -> str:
        """Return the same as text, the same for the same workers."""
        return json.dumps(self.as_header(), sort_keys=True)

    def may_run(self, nodename: str) -> bool:
        """Whether a worker of this name may begin what its message says this of."""
        if self.run:
            return self.pin == nodename
        return self.means(nodename)

    def means(self, nodename: str) -> bool:
        """Whether it may be sent to a worker of this name."""
        return not self.only or any(matches(pattern, nodename) for pattern in self.only)

    def rank(self, nodename: str) -> int:
        """Return how much a worker is preferred; 0: the most, and `len(prefer)`: not at all."""
        ranks = (rank for rank, one in enumerate(self.prefer) if matches(one, nodename))
        return next(ranks, len(self.prefer))


def _texts(told: object) -> tuple[str, ...]:
    if isinstance(told, str) or not isinstance(told, Iterable):
        return ()
    return tuple(str(one) for one in told)
