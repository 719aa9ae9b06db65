"""Which keys in Redis should not be there when every task has ended."""

from __future__ import annotations

import re

import redis

__all__ = ["LEDGER", "left_in"]

#: What every key of the ledger begins with.
LEDGER = "{reliable:0}:"

#: What may remain: what the ledger's README says of a namespace in which every task has ended, and
#: what Celery and kombu keep.
_REMAINS = re.compile(
    re.escape(LEDGER)
    + r"(meta|clock|workers|worker:.*|direct|happened|counts|audit|ended|ended_at|sent:.*|pass"
    + r"|groups)$"
    + r"|_kombu\.binding.*|celery-reliable\.(unacked|mark):reliable"
    + r"|celery-task-meta-.*|celery-taskset-meta-.*"
)
#: What may remain for a while.
_EXPIRES = re.compile(re.escape(LEDGER) + r"((taken|rate):.*|bell|waker)")


def left_in(*clients: redis.Redis) -> list[str]:
    """The keys of these databases that would not be there if nothing had happened."""
    found = []
    for client in clients:
        keys: list[bytes] = client.keys("*")  # type: ignore[assignment]
        found += [one for key in keys if not _may_remain(client, one := key.decode())]
    return sorted(found)


def _may_remain(client: redis.Redis, key: str) -> bool:
    if _EXPIRES.fullmatch(key):
        # Gone meanwhile is -2, without an expiry -1.
        return client.pttl(key) != -1
    return _REMAINS.fullmatch(key) is not None
