"""The Redis transport of producers whose queues are on the ledger's server: the step that records a
message also puts it into its list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.utils.json import dumps

from celery_reliable.broker.channel import ConnectedChannel
from celery_reliable.broker.unacked import script
from celery_reliable.compat.kombu import PuttingChannel, expires_after_ms, list_key, priority_of
from celery_reliable.redis_io import is_of_full_server

__all__ = [
    "SendingSentinelTransport",
    "SendingTransport",
    "sending_again",
    "sending_together",
    "sending_transport_for",
    "sending_with",
]

#: Is given a list's key and a message, and puts the message there if it is the expected one.
Send = Callable[[str, dict[str, Any]], bool]
#: The command that puts a recorded message into its list; empty for what is sent the first time.
_again: ContextVar[str] = ContextVar("celery_reliable_sending_again", default="")
_sending: ContextVar[Send | None] = ContextVar("celery_reliable_sending", default=None)


@contextmanager
def sending_with(send: Send) -> Iterator[None]:
    """Let *send* put what is published inside into its list, instead of the sending transport.

    It returns False for a message that is not its own, which the transport then puts there.
    """
    token = _sending.set(send)
    try:
        yield
    finally:
        _sending.reset(token)


@contextmanager
def sending_again(*, is_first: bool) -> Iterator[None]:
    """Let what is published inside, and is recorded, go to its list also on a full server, if the
    sending transport puts it there; *is_first*: in front of what waits in the list.
    """
    token = _again.set("RPUSH" if is_first else "LPUSH")
    try:
        yield
    finally:
        _again.reset(token)


class _Together:
    """Messages that are put into their lists in one round trip."""

    def __init__(self) -> None:
        self._channel: SendingChannel | None = None
        #: Of each the command that puts it into its list, the list, and what is put there.
        self._messages: list[tuple[str, str, str]] = []
        self._queues: dict[str, None] = {}

    def add(self, channel: SendingChannel, queue: str, message: dict[str, Any]) -> None:
        key = list_key(channel, queue, priority_of(channel, message))
        self._channel = channel
        self._messages.append((_again.get() or "LPUSH", key, dumps(message)))
        self._queues[queue] = None

    def put(self) -> None:
        channel = self._channel
        if channel is None:
            return
        with channel.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            for command, key, message in self._messages:
                getattr(pipe, command.lower())(key, message)
            replies = pipe.execute(raise_on_error=False)
        for one, reply in zip(self._messages, replies, strict=True):
            if isinstance(reply, Exception):
                channel.send_when_full(*one, reply)
        for queue in self._queues:
            channel.keep_from_expiring(queue)


_together: ContextVar[_Together | None] = ContextVar("celery_reliable_together", default=None)


@contextmanager
def sending_together() -> Iterator[None]:
    """Let all that is published inside go to its lists in one round trip at the end, if the sending
    transport puts it there.  Raises redis-py's errors, and then some may have been put.
    """
    together = _Together()
    token = _together.set(together)
    try:
        yield
    finally:
        _together.reset(token)
    together.put()


class SendingChannel(PuttingChannel, ConnectedChannel):
    """A channel whose messages `sending_with` may put into their lists."""

    # The publication itself fails, and its caller hears why.
    has_to_write = False

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Return a body and its encoding: as it is, if it is text and recorded, as base64 would add
        a third to the sizes of queue and record.
        """
        is_recorded = _sending.get() is not None
        if is_recorded and isinstance(body, str) and encoding == self.body_encoding:
            return body, None
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    def put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        """Put a message into its list, unless `sending_with` does."""
        send = _sending.get()
        if send is not None:
            key = self.global_keyprefix + list_key(self, queue, priority_of(self, message))
            if send(key, message):
                self.keep_from_expiring(queue)
                return
        together = _together.get()
        if together is not None:
            together.add(self, queue, message)
            return
        command = _again.get()
        if not command:
            super().put(queue, message, **kwargs)
            return
        one = command, list_key(self, queue, priority_of(self, message)), dumps(message)
        try:
            with self.conn_or_acquire() as client:
                getattr(client, command.lower())(*one[1:])
        except redis.RedisError as exc:
            self.send_when_full(*one, exc)
        self.keep_from_expiring(queue)

    def send_when_full(self, command: str, key: str, message: str, why: Exception) -> None:
        """Put a recorded message into its list after a full server has refused it; raises *why* if
        that was another error.
        """
        if not is_of_full_server(why):
            raise why
        with self.conn_or_acquire() as client:
            # kombu's client does not add its prefix to this one's key.
            client.eval(script("send").text, 1, self.global_keyprefix + key, command, message)

    def keep_from_expiring(self, queue: str) -> None:
        """Put off the expiry of a queue that was declared with ``expires``, as kombu does when it
        puts a message there.
        """
        after_ms = expires_after_ms(self, queue)
        if after_ms is not None:
            with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
                for priority in self.priority_steps:
                    pipe.pexpire(list_key(self, queue, priority), after_ms)
                pipe.execute()


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
