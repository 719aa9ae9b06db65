"""An app's producers: who may send with which.

With gevent and eventlet a socket belongs to the loop of the thread that connected it, and a lock to
the greenlets of one thread.  So a native thread of ours has producers and an event dispatcher of
its own, for whatever is published there: what it sends again, callbacks of a burial, and what
receivers publish.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu import pools

from celery_reliable.application import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.sending import SENDING_TRANSPORT
from celery_reliable.threads import is_apart, socket_owner

__all__ = ["PLACE", "ProducingAMQP", "close_apart", "dispatcher_apart"]

#: The transport option that tells where a producer of ours sends to.
PLACE = "reliable_queues_at"
#: Where an app's AMQP keeps what native threads publish with, by thread.
_APART = "_reliable_apart"


class ProducingAMQP(AMQP):
    """Celery's AMQP with producers that may send and record in one step."""

    _producer_pool: Any

    @property
    def producer_pool(self) -> Any:
        """The producers of the app; in a native thread of ours among greenlets, its own."""
        if is_apart():
            return _apart(self.app).producers
        place = _queues_of(self.app) if self._producer_pool is None else ""
        if place:
            pool = pools.producers[_connection_to(self.app, place)]
            pool.limit = self.app.pool.limit
            self._producer_pool = pool
        return super().producer_pool

    publisher_pool = producer_pool


class _Apart:
    """What one native thread publishes with."""

    def __init__(self, app: Celery) -> None:
        place, limit = _queues_of(app), app.pool.limit
        connection = _connection_to(app, place) if place else app.connection_for_write()
        self.producers = pools.ProducerPool(connection.Pool(limit), limit=limit)
        # As Celery's own for `send_task`: it sends with the producer that it is given.
        self.dispatcher = app.events.Dispatcher(enabled=False)


def dispatcher_apart(app: Celery) -> Any:
    """Return the event dispatcher of this native thread."""
    return _apart(app).dispatcher


def close_apart(app: Celery) -> None:
    """Close what this native thread has published with, at its end."""
    if is_apart():
        apart = app.amqp.__dict__.get(_APART, {}).pop(socket_owner(), None)
        if apart is not None:
            apart.producers.force_close_all()
            apart.producers.connections.force_close_all()


def _apart(app: Celery) -> _Apart:
    by_thread: dict[int, _Apart] = app.amqp.__dict__.setdefault(_APART, {})
    found = by_thread.get(socket_owner())
    if found is None:
        found = by_thread[socket_owner()] = _Apart(app)
    return found


def _connection_to(app: Celery, place: str) -> Any:
    return app.connection_for_write(transport=SENDING_TRANSPORT, transport_options={PLACE: place})


def _queues_of(app: Celery) -> str:
    try:
        return reliable_of(app).queues_at
    except ReliableError:
        # Wrong settings are told of by who publishes a task of ours; this may be anybody.
        return ""
