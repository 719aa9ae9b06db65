"""A user of Redis who may do what the package says he needs, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery_reliable.settings import acl_rule


def least_rule(namespace: str = "reliable") -> list[str]:
    """The words that the package prints, after the user's name and password."""
    return list(acl_rule(namespace))


def granted(
    client: Any,
    *,
    namespace: str = "reliable",
    without: Iterable[str] = (),
    more: Iterable[str] = (),
) -> str:
    """Make that user at *client*'s server, or change him; return his URL.

    *without* are words of the rule that he is not given, *more* what he is given besides.
    """
    refused = set(without)
    assert refused <= set(least_rule()), refused - set(least_rule())
    rules = zip(least_rule(), least_rule(namespace), strict=True)
    words = [word for named, word in rules if named not in refused]
    client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">password", *words, *more)
    where = client.connection_pool.connection_kwargs
    return f"redis://app:password@127.0.0.1:{where['port']}/{where.get('db') or 0}"
