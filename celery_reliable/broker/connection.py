"""Connections to a list of URLs, which keep our transports whichever of them is in use.

Those of kombu's pools are of a class of its own, and do not.
"""

from __future__ import annotations

from typing import Any

from kombu import Connection

from celery_reliable.broker.producer_transport import sending_transport_for
from celery_reliable.broker.worker_transport import transport_for
from celery_reliable.compat.kombu import OpenSwitch

__all__ = ["keeping_our_transports"]


class _Keeping(OpenSwitch):
    def keeps_transport(self, given: Any, url: str) -> bool:
        scheme = url.partition("://")[0]
        own = transport_for(scheme)
        return own is not None and given in (own, sending_transport_for(scheme))


class ReliableConnection(_Keeping, Connection):
    """kombu's connection."""


def keeping_our_transports(cls: type[Connection]) -> type[Connection]:
    """Return the class of connections for a project that has *cls* for its own."""
    return ReliableConnection if cls is Connection else type(cls.__name__, (_Keeping, cls), {})
