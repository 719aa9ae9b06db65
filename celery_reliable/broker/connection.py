"""Connections to a list of URLs, which keep a worker's transport whichever of them is in use.

Those of kombu's pools, by which producers send, are of a class of its own.
"""

from __future__ import annotations

from typing import Any

from kombu import Connection

from celery_reliable.compat.connection import OpenSwitch
from celery_reliable.settings import REDIS_SCHEMES

__all__ = ["keeping_transport", "transport_for"]


def transport_for(scheme: str) -> str | None:
    """Return our transport's import path for a broker URL's scheme; None when there is none."""
    if scheme == "sentinel":
        return "celery_reliable.transport:SentinelTransport"
    if scheme in REDIS_SCHEMES:
        return "celery_reliable.transport:Transport"
    return None


class _Keeping(OpenSwitch):
    def keeps_transport(self, given: Any, url: str) -> bool:
        # None is what nobody has chosen, and what we have none for.
        return given is not None and given == transport_for(url.partition("://")[0])


class ReliableConnection(_Keeping, Connection):
    """kombu's connection."""


def keeping_transport(cls: type[Connection]) -> type[Connection]:
    """Return the class of connections for a project that has *cls* for its own."""
    return ReliableConnection if cls is Connection else type(cls.__name__, (_Keeping, cls), {})
