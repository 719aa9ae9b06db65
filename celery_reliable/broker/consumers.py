"""Deliveries on their last step: from the channel to the consumer of their queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import redis
from kombu.transport.virtual.base import queue_declare_ok_t

from celery_reliable.broker.channel import ConnectedChannel
from celery_reliable.broker.deliveries import Delivery
from celery_reliable.broker.qos import QoS
from celery_reliable.compat import note
from celery_reliable.log import logger
from celery_reliable.message import headers_as_written, payload_of
from celery_reliable.redis_io import refuses_writes

__all__ = [
    "ConsumingChannel",
]


class ConsumingChannel(ConnectedChannel):
    """A channel that consumes queues, also of a full server, which refuses part of declaring them.

    It hands what was taken to the consumers of its queues.  What a consumer cannot be given goes
    back, is dropped, or is kept for an operator.
    """

    QoS = QoS

    _is_closing = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: What has the messages of a queue.
        self._callbacks: dict[str, Callable[[Any], Any]] = {}
        #: The queues whose messages nobody acknowledges.
        self._without_ack: set[str] = set()
        super().__init__(*args, **kwargs)
        self._try_to_write()

    def _try_to_write(self) -> None:
        """Raise a connection error where nothing can be written.

        It is raised as the channel is opened, because Celery waits between its attempts to connect,
        and does not wait between those to begin to consume.
        """
        try:
            # Removes a member that is not there from a key that kombu uses anyway.
            self.client.srem(self.keyprefix_queue % "celery-reliable", "")
        except redis.ResponseError as exc:
            # A user without the right to do this is told of it where the right is needed.
            logger.debug("writing_not_tried error=%s", exc)
        except BaseException:
            self.pool.disconnect()
            raise

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Consume from a queue."""
        (self._without_ack.add if no_ack else self._without_ack.discard)(queue)
        self._callbacks[queue] = callback
        return super().basic_consume(queue, no_ack, callback, *args, **kwargs)

    def queue_declare(self, queue: str, *args: Any, **kwargs: Any) -> Any:
        """Declare a queue; how many messages wait there a full server does not say."""
        try:
            return super().queue_declare(queue, *args, **kwargs)
        except redis.ResponseError as exc:
            if not refuses_writes(exc):
                raise
            return queue_declare_ok_t(queue, 0, 0)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", **kwargs: Any
    ) -> None:
        """Bind a queue.  Only publishers need what a full server does not note: who declares the
        queue again notes it.
        """
        try:
            super().queue_bind(queue, exchange, routing_key, **kwargs)
        except redis.ResponseError as exc:
            if not refuses_writes(exc):
                raise
            self.state.binding_delete(queue, exchange or "amq.direct", routing_key)

    def is_consumed(self, queue: str) -> bool:
        """Whether somebody consumes from a queue, and goes on to."""
        unacked = self.reliable_unacked
        return (
            queue in self.active_queues
            and not self._is_closing
            and not (unacked is not None and unacked.worker.is_held_back(queue))
        )

    def deliver_all(self, deliveries: Iterable[Delivery]) -> None:
        """Deal with what was taken."""
        kept_back = []
        for delivery in deliveries:
            # A task that ran here meanwhile (with a solo pool) may have taken its time.
            if self.is_consumed(delivery.queue):
                self._deliver_one(delivery)
            else:
                kept_back.append(delivery)
        # The newest first, as each goes in front of the others.
        for delivery in reversed(kept_back):
            self._give_up(delivery)
            self.qos.unacked.give_back(self, delivery.tag, is_last=False)

    def _deliver_one(self, delivery: Delivery) -> None:
        """Make kombu's message of one that is filed, and call its consumer."""
        try:
            payload = payload_of(delivery.raw)
            payload["properties"]["delivery_tag"] = delivery.tag
            message = self.Message(payload, channel=self)
        except Exception as exc:
            # The message raised this, and must not end the main loop.
            self._keep(delivery, exc)
            return
        note(message, "claim", delivery.claim)
        note(message, "queue", delivery.queue)
        is_acknowledged = delivery.queue not in self._without_ack
        if is_acknowledged:
            self.qos.append(message, delivery.tag)
            note(message, "holder", delivery.holder)
        self._callbacks[delivery.queue](message)
        if not is_acknowledged:
            self.qos.unacked.discard(delivery.tag)

    def _give_up(self, delivery: Delivery) -> None:
        if delivery.claim is not None:
            task_id = headers_as_written(delivery.raw).get("id", "")
            self.qos.unacked.worker.give_up(delivery.claim.of(task_id))

    def _keep(self, delivery: Delivery, error: Exception) -> None:
        unacked = self.qos.unacked
        self._give_up(delivery)
        if unacked.worker.on_unreadable(delivery, error):
            unacked.discard(delivery.tag)
