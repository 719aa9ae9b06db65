"""An app's producers, and where they send to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

from celery import Celery
from kombu import pools

from celery_reliable.app import reliable_of, scheme_of
from celery_reliable.broker import keeping_transport, sending_transport_for
from celery_reliable.compat import Part, require
from celery_reliable.compat.amqp import OpenAMQP
from celery_reliable.exceptions import ReliableError

__all__ = ["PLACE", "ProducingAMQP"]

#: The transport option that tells where a producer of ours sends to.
PLACE = "reliable_queues_at"


class ProducingAMQP(OpenAMQP):
    """Celery's AMQP with producers that may send and record in one step."""

    def connection_class(self, own: Any) -> Any:
        """Return the class of the app's connections to its broker. *own*: that of the project."""
        return keeping_transport(own)

    @property
    def producer_pool(self) -> Any:
        """The producers of the app."""
        place = _queues_of(self.app) if self.producers_so_far is None else ""
        if place:
            require(Part.REDIS_PRODUCER)
            # kombu keeps a pool for each transport, so this one is used by our producers only.
            pool = pools.producers[_connection_to(self.app, place)]
            pool.limit = self.app.pool.limit
            self.producers_so_far = pool
        return super().producer_pool

    publisher_pool = producer_pool


def _connection_to(app: Celery, place: str) -> Any:
    options: dict[str, Any] = {"transport_options": {PLACE: place}}
    scheme = scheme_of(app.conf.broker_write_url)
    if scheme == "sentinel":
        options["failover_strategy"] = _stay
    return app.connection_for_write(transport=sending_transport_for(scheme), **options)


def _stay(urls: Sequence[str]) -> Iterator[str]:
    """Return where a connection goes on to when it is lost, behind Sentinels of these URLs.

    A channel asks all of them for its master.  With the URL of another, kombu would take another
    transport: it makes the connections of its pools by itself.
    """
    return repeat(urlsplit(urls[0]).hostname or "")


def _queues_of(app: Celery) -> str:
    try:
        return reliable_of(app).queues_at
    except ReliableError:
        # The publication of a task of ours raises this; other tasks must go on.
        return ""
