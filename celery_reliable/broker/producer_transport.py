"""The Redis transport of producers whose queues are on the ledger's server: the step that records a
message also puts it into its list.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.utils.json import dumps

from celery_reliable.broker.channel import ConnectedChannel
from celery_reliable.broker.unacked import script
from celery_reliable.compat.kombu import PuttingChannel, list_key, priority_of
from celery_reliable.redis_io import refuses_writes
from celery_reliable.scoped import scoped

__all__ = [
    "SendingSentinelTransport",
    "SendingTransport",
    "sending_again",
    "sending_transport_for",
    "sending_with",
]

#: Is given a list's key and a message, and puts the message there if it is the expected one.
Send = Callable[[str, dict[str, Any]], bool]
#: The command that puts a recorded message into its list; empty for what is sent the first time.
_again: ContextVar[str] = ContextVar("celery_reliable_sending_again", default="")
_sending: ContextVar[Send | None] = ContextVar("celery_reliable_sending", default=None)


def sending_with(send: Send) -> AbstractContextManager[None]:
    """Let *send* put what is published inside into its list, instead of the sending transport.

    It returns False for a message that is not its own, which the transport then puts there.
    """
    return scoped(_sending, send)


def sending_again(*, is_first: bool) -> AbstractContextManager[None]:
    """Let what is published inside, and is recorded, go to its list also on a full server, if the
    sending transport puts it there; *is_first*: in front of what waits in the list.
    """
    return scoped(_again, "RPUSH" if is_first else "LPUSH")


class SendingChannel(PuttingChannel, ConnectedChannel):
    """A channel whose messages `sending_with` may put into their lists."""

    @property
    def async_pool(self) -> Any:
        """The connections of `client`.  kombu has others for waiting, which nobody does here."""
        return self.pool

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Return a body and its encoding: as it is, if it is text and recorded, as base64 would add
        a third to the sizes of queue and record.
        """
        is_recorded = _sending.get() is not None
        if is_recorded and isinstance(body, str) and encoding == self.body_encoding:
            return body, None
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    def has_put(self, queue: str, message: dict[str, Any]) -> bool:
        """Put a message into its list, if it is one that was recorded."""
        key = list_key(self, queue, priority_of(self, message))
        send, command = _sending.get(), _again.get()
        if send is not None and send(self.global_keyprefix + key, message):
            return True
        if not command:
            return False
        text = dumps(message)
        with self.conn_or_acquire() as client:
            try:
                getattr(client, command.lower())(key, text)
            except redis.ResponseError as exc:
                if not refuses_writes(exc):
                    raise
                # It is recorded, so it goes there also on a full server.  kombu's client does not
                # add its prefix to this one's key.
                client.eval(script("send").text, 1, self.global_keyprefix + key, command, text)
        return True


class SendingTransport(kombu_redis.Transport):
    """kombu's Redis transport for producers."""

    Channel = SendingChannel


class SendingSentinelChannel(SendingChannel, kombu_redis.SentinelChannel):
    """The same behind Sentinel."""


class SendingSentinelTransport(kombu_redis.SentinelTransport):
    """kombu's Sentinel transport for producers."""

    Channel = SendingSentinelChannel


def sending_transport_for(scheme: str) -> str:
    """Return the import path of the transport of producers whose broker's URL has this scheme."""
    cls = SendingSentinelTransport if scheme == "sentinel" else SendingTransport
    return f"{cls.__module__}:{cls.__name__}"
