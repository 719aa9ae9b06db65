"""How a worker is made to consume through our transport, into an unacked hash of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from celery_reliable.app import Reliable, scheme_of
from celery_reliable.broker import UNACKED_PREFIX, transport_for
from celery_reliable.compat.connection import shown_as
from celery_reliable.context import WorkerProcess
from celery_reliable.log import logger

__all__ = ["consume_apart"]


def consume_apart(
    reliable: Reliable, process: WorkerProcess
) -> tuple[str, list[Callable[[], Any]]]:
    """Set the app's transport to ours, while the broker's URL stays as it is.

    Return the name of the unacked hash, and what undoes the change; the name is empty and nothing
    is changed where the broker is no Redis, or the project has a transport of its own.
    """
    conf = reliable.app.conf
    scheme = scheme_of(reliable.broker_url)
    path = transport_for(scheme)
    if path is None:
        logger.info("broker_keeps_deliveries scheme=%s", scheme)
        return "", []
    if conf.broker_transport and conf.broker_transport not in (path, "redis", "rediss", "sentinel"):
        logger.warning("broker_transport_kept transport=%s", conf.broker_transport)
        return "", []
    before, conf.broker_transport = conf.broker_transport, path
    undo: list[Callable[[], Any]] = [
        partial(setattr, conf, "broker_transport", before),
        # What Celery shows of a connection begins with its transport.
        shown_as(path, scheme),
    ]
    return f"{UNACKED_PREFIX}{process.base}", undo
