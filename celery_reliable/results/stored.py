"""Whose a stored result is.

No clock can tell: a worker's clock is not the ledger's.  A result that an attempt stores names the
attempt.  One that names none was stored by somebody else, or in a backend that cannot keep a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.backends.redis import RedisBackend, SentinelBackend
from celery.states import READY_STATES

from celery_reliable.ledger import behind_sentinels, server_of
from celery_reliable.message import looks_used_once
from celery_reliable.model import Record

__all__ = [
    "MARK",
    "NOTHING",
    "is_celerys_redis",
    "is_of",
    "mark",
    "may_have_lived_before",
    "results_server_of",
    "seen",
]


def is_celerys_redis(backend: Any) -> bool:
    """Whether results are kept on a Redis in Celery's own way: a subclass may have another."""
    return type(backend) in (RedisBackend, SentinelBackend)


def results_server_of(backend: Any) -> tuple[object, ...] | None:
    """Return the server that a backend keeps results on, as `Connector.server` has it; None where
    that cannot be told.
    """
    if not is_celerys_redis(backend):
        return None
    given = backend.connparams
    if type(backend) is SentinelBackend:
        options = backend.app.conf.result_backend_transport_options or {}
        nodes = [(one.get("host"), one.get("port")) for one in given.get("hosts") or ()]
        if not options.get("master_name"):
            return None
        given = {**given, "path": behind_sentinels(options["master_name"], nodes)}
    return server_of(given)


#: What `seen` returns where there is no result, or one that names its attempt.
NOTHING = "nothing"
#: The field of a result that names the attempt, or the burial, that it is of.
MARK = "reliable"


def mark(epoch: str, attempt: int, token: str) -> str:
    """Return the name of an attempt: its publication, its number, and the token of its claim."""
    return f"{epoch}/{attempt}/{token}"


def is_of(meta: Mapping[str, Any], record: Record) -> bool:
    """Whether a result was stored by the very attempt that a record names."""
    return bool(meta.get(MARK) == mark(record.epoch, record.attempt, record.token))


def may_have_lived_before(record: Record) -> bool:
    """Whether a task that had the same id before may have left a result."""
    return record.is_used or not looks_used_once(record.task_id)


def seen(meta: Mapping[str, Any]) -> str:
    """Return what identifies a result that names no attempt; `NOTHING` where there is none.

    Two that are stored under one id, one after the other, differ in the times that their workers
    gave them.
    """
    if meta.get(MARK) or meta.get("status") not in READY_STATES:
        return NOTHING
    return f"{meta['status']} {meta.get('date_done')}"
