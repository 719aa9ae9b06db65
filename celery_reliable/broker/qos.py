"""What a worker was delivered and has not acknowledged, as its channel sees it."""

from __future__ import annotations

from typing import Any

import redis

from celery_reliable.broker.worker_unacked import WorkerUnacked
from celery_reliable.compat import noted
from celery_reliable.compat.kombu import OpenQoS
from celery_reliable.log import logger
from celery_reliable.message import Stamp
from celery_reliable.redis_io import left_out_when_full

__all__ = ["GOES_FIRST", "QoS"]

#: The note on a message that goes in front of what waits when it is given back.
GOES_FIRST = "goes_first"


class QoS(OpenQoS):
    """Keeps deliveries in the worker's unacked hash, if the channel has one."""

    @property
    def unacked(self) -> WorkerUnacked | None:
        """The unacked hash, or None for a channel without one (a producer's, say)."""
        found: WorkerUnacked | None = self.channel.reliable_unacked
        return found

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count the message as delivered.

        A message from a queue is in the unacked hash already.  A broadcast one is in none, as there
        is no queue to return it to.
        """
        if self.unacked is None:
            super().append(message, delivery_tag)
        else:
            self.hold(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Remove the message from the unacked hash; never raises because the broker or the channel
        is gone.
        """
        unacked = self.unacked
        if unacked is None:
            super().ack(delivery_tag)
            return
        message = self.held(delivery_tag)
        if message is not None and Stamp.of(message.headers).generation:
            # It may stay for a while: if the worker dies, the message is compared with its record.
            unacked.remove_soon(delivery_tag)
        else:
            unacked.remove(delivery_tag)
        self.forget(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the message back behind the others, or in front if that is noted; or remove it."""
        unacked = self.unacked
        if requeue:
            message = self.held(delivery_tag)
            is_first = message is not None and bool(noted(message, GOES_FIRST))
            self.give_back(delivery_tag, is_last=not is_first)
        elif unacked is None:
            super().reject(delivery_tag)
        else:
            unacked.remove(delivery_tag)
            self.forget(delivery_tag)

    def give_back(self, delivery_tag: str, *, is_last: bool = False) -> None:
        """Give the message back before the others of its queue, or behind them."""
        unacked = self.unacked
        if unacked is None:
            super().reject(delivery_tag, requeue=True)
            return
        try:
            unacked.give_back(self.channel, delivery_tag, is_last=is_last)
        finally:
            # Celery only logs this error.  A message that stayed is given back once it is not held.
            self.forget(delivery_tag)

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        """Look after kombu's own unacked messages; on a full server, when there is room again."""
        with left_out_when_full():
            super().restore_visible(*args, **kwargs)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give back what this channel was delivered and nobody runs, when it is closed.

        After a lost connection, what runs stays in the unacked hash: its task goes on and is
        acknowledged there.
        """
        unacked = self.unacked
        if unacked is None:
            if self.channel.connection is not None and self.channel.connection.client is not None:
                super().restore_unacked_once(stderr)
            return
        delivered = self.restore_last()
        if delivered is None:
            return
        try:
            if unacked.is_leaving:
                unacked.worker.before_leaving()
                unacked.catch_up()
                # If a signal came between filing and delivery, only the unacked hash has it.
                others = unacked.tags() - set(delivered)
                taken = unacked.worker.is_taken_by_pool
                tags = [*delivered, *(tag for tag in others if not taken(tag))]
            else:
                kept = unacked.worker.running_tags()
                tags = [tag for tag in delivered if tag not in kept]
                # Of these only what a process was handed may still begin.
                unacked.given_up.extend(tags)
            # The newest first, as each goes in front of the others.
            for tag in reversed(tags):
                unacked.give_back(self.channel, tag, is_last=False)
        except (redis.RedisError, OSError) as exc:
            logger.warning("deliveries_not_given_back unacked=%s error=%s", unacked.name, exc)
