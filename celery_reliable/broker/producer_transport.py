"""The Redis transport of producers whose queues are on the ledger's server: what they publish is
put into its list by the step that records it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from kombu.transport import redis as kombu_redis

from celery_reliable.broker.worker_transport import Channel
from celery_reliable.compat.kombu import PuttingChannel, expires_after_ms, list_key, priority_of

__all__ = ["SENDING_TRANSPORT", "SendingTransport", "sending_with"]

#: As Celery names it.
SENDING_TRANSPORT = f"{__name__}:SendingTransport"

#: Puts a message into a list, if it is the one that it is meant for.
Send = Callable[[str, dict[str, Any]], bool]
_sending: ContextVar[Send | None] = ContextVar("celery_reliable_sending", default=None)


@contextmanager
def sending_with(send: Send) -> Iterator[None]:
    """Let *send* put what is published here into its list, over a connection of SENDING_TRANSPORT.

    It is given the list's key and the message, and returns False for one that is not its own.
    """
    token = _sending.set(send)
    try:
        yield
    finally:
        _sending.reset(token)


class SendingChannel(PuttingChannel, Channel):
    """A channel whose messages somebody else may put into their lists."""

    # Who publishes hears what the server says to that.
    has_to_write = False

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Leave recorded text as it is: base64 would add a third to queue and record."""
        is_recorded = _sending.get() is not None
        if is_recorded and isinstance(body, str) and encoding == Channel.body_encoding:
            return body, None
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    def put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        """Put a message into its list, unless somebody else does."""
        send = _sending.get()
        if send is not None:
            key = self.global_keyprefix + list_key(self, queue, priority_of(self, message))
            if send(key, message):
                self._tell_of_use(queue)
                return
        super().put(queue, message, **kwargs)

    def _tell_of_use(self, queue: str) -> None:
        """Let a queue that expires when it is not used expire later, as kombu does."""
        after_ms = expires_after_ms(self, queue)
        if after_ms is not None:
            with self.conn_or_acquire() as client, client.pipeline() as pipe:
                for priority in self.priority_steps:
                    pipe.pexpire(list_key(self, queue, priority), after_ms)
                pipe.execute()


class SendingTransport(kombu_redis.Transport):
    """kombu's Redis transport for producers."""

    Channel = SendingChannel
