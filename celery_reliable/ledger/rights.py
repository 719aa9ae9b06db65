"""Finds out which commands the user of a Redis may not run, without running them.

The commands are queued in a transaction: the server checks the rights of each as it is queued.
Then the transaction is discarded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import redis

from celery_reliable.ledger.refusals import is_forbidden
from celery_reliable.ledger.scripts import names, script
from celery_reliable.redis_io import Line

__all__ = ["Command", "denied", "ledger_commands", "on_key"]

#: The name of a command and its arguments.
Command = tuple[str, ...]

#: Arguments after the key.  Their values do not matter, but the server counts them.
_AFTER_KEY: dict[str, Command] = {
    "BRPOP": ("1",),
    "EXPIRE": ("1",),
    "HDEL": ("field",),
    "HEXISTS": ("field",),
    "HGET": ("field",),
    "HINCRBY": ("field", "1"),
    "HMGET": ("field",),
    "HSCAN": ("0",),
    "HSET": ("field", "value"),
    "LINDEX": ("0",),
    "LPUSH": ("value",),
    "PEXPIRE": ("1",),
    "PUBLISH": ("value",),
    "RPUSH": ("value",),
    "SADD": ("member",),
    "SET": ("value",),
    "SETEX": ("1", "value"),
    "SREM": ("member",),
    "XADD": ("*", "field", "value"),
    "XREVRANGE": ("+", "-"),
    "ZADD": ("1", "member"),
    "ZLEXCOUNT": ("-", "+"),
    "ZRANK": ("member",),
    "ZRANGE": ("0", "0"),
    "ZRANGEBYSCORE": ("0", "0"),
    "ZREM": ("member",),
    "ZREVRANGEBYSCORE": ("0", "0"),
    "ZSCORE": ("member",),
}
#: Finds the commands that scripts run on the ledger's own keys.
_IN_SCRIPT = re.compile(r"redis\.call\('(\w+)', KEYS")
#: Commands that Python runs to read.
_READS = ("HGETALL", "HMGET", "ZCARD", "ZRANGE", "ZRANK")
#: Commands that scripts run on keys of the broker and of the results.
_ELSEWHERE = ("LPUSH", "PUBLISH")


def on_key(key: str, *names_: str) -> list[Command]:
    """Return the commands called *names_* on *key*."""
    return [(name, key, *_AFTER_KEY.get(name, ())) for name in names_]


def ledger_commands(key: str) -> list[Command]:
    """Return all commands that the ledger runs, with *key* in place of its own keys."""
    found = {name for one in names() for name in _IN_SCRIPT.findall(script(one).text)}
    return [
        ("EVALSHA", "0" * 40, "1", key),
        ("EVAL", "return 1", "1", key),
        ("TIME",),
        ("INFO",),
        *on_key(key, *sorted(found.union(_READS).difference(_ELSEWHERE))),
    ]


def denied(client: redis.Redis, commands: Iterable[Command]) -> list[str] | None:
    """Return what the client's user may not do of *commands*, such as "HSCAN" or "the key x"; None
    if the server does not answer.
    """
    line = Line(client.connection_pool)
    asked = list(dict.fromkeys(commands))
    try:
        (begun,) = line.ask(("MULTI",))
        if isinstance(begun, Exception):
            # Without it they would be executed.
            return ["MULTI"] if is_forbidden(begun) else None
        *answers, _ = line.ask(*asked, ("DISCARD",))
    except (redis.RedisError, OSError):
        return None
    finally:
        line.close()
    found: dict[str, None] = {}
    for command, answer in zip(asked, answers, strict=True):
        if not isinstance(answer, Exception) or not is_forbidden(answer):
            continue
        words = str(answer)
        if "channel" in words:
            found[f"the channel {command[1]}"] = None
        elif " key" in words:
            found[f"the key {_key_of(command)}"] = None
        else:
            found[command[0]] = None
    return list(found)


def _key_of(command: Command) -> str:
    return command[3] if command[0] in ("EVAL", "EVALSHA") else command[1]
