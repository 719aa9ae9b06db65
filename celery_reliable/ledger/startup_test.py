"""Tries a task's whole life on the server when a worker starts, before a real task can fail."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import redis

from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger.answers import Claimed, Settled
from celery_reliable.ledger.caller import FORMAT, is_forbidden
from celery_reliable.ledger.scripts import names, script
from celery_reliable.ledger.transitions import Step
from celery_reliable.redis_io import Line

if TYPE_CHECKING:
    from celery_reliable.ledger import Ledger

__all__ = [
    "Command",
    "denied",
    "ledger_commands",
    "on_key",
    "self_test",
]

#: The name of a command and its arguments.
Command = tuple[str, ...]

#: How many arguments commands take after the key.  Their values do not matter, but the server
#: counts them.
_AFTER_KEY = {
    1: "BRPOP EXPIRE HDEL HEXISTS HGET HMGET HSCAN LINDEX LPUSH PEXPIRE PUBLISH RPUSH SADD SET "
    "SREM ZRANK ZREM ZSCORE",
    2: "HINCRBY HSET SETEX XREVRANGE ZADD ZLEXCOUNT ZRANGE ZRANGEBYSCORE ZREVRANGEBYSCORE",
    3: "XADD",
}
#: Finds the commands that scripts run on the ledger's own keys.
_IN_SCRIPT = re.compile(r"redis\.call\('(\w+)', KEYS")
#: Commands that Python runs to read.
_READS = ("HGETALL", "HMGET", "ZCARD", "ZRANGE", "ZRANK")
#: Commands that scripts run on keys of the broker and of the results.
_ELSEWHERE = ("LPUSH", "PUBLISH")


def on_key(key: str, *names_: str) -> list[Command]:
    """Return the commands called *names_* on *key*."""
    return [
        (name, key, *["1"] * sum(n for n, all_ in _AFTER_KEY.items() if name in all_.split()))
        for name in names_
    ]


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

    The commands are queued in a transaction, which is discarded then: the server checks the rights
    of each as it is queued.
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


#: A full server is no reason not to start: it may have room again, and callers wait for that.
_FULL = re.compile(r"\bOOM\b|'maxmemory'")


def self_test(ledger: Ledger) -> None:
    """Record, withdraw, claim and settle a task with a name that nobody else has.

    All of it is one transaction: nobody sees it, and it leaves nothing.  Raises LedgerRefused or
    LedgerForbidden if the server does not let it, and LedgerUnavailable if it does not answer.  A
    full server raises nothing.
    """
    name = f"self-test-{secrets.token_hex(8)}"
    calls, hour_ms = ledger.calls, 3_600_000
    steps: list[Step[Any]] = [
        calls.record(
            id=name,
            name="",
            epoch=name,
            generation=ledger.generation,
            due_in_ms=hour_ms,
            message="",
            worker="",
            sender="",
            queue="",
        ),
        calls.cancel(id=name, seen=name, is_unsent=True, due_in_ms=hour_ms),
        calls.register(
            worker=name,
            lease_ms=hour_ms,
            client_id=0,
            facts="{}",
            number=1,
            format=FORMAT,
            queue="",
        ),
        calls.claim(
            id=name,
            name="",
            epoch="",
            generation="",
            message="none",
            worker=name,
            token=name,
            pid=os.getpid(),
            time_to_run_ms=0,
            alone_ms=0,
        ),
        calls.settle(
            id=name,
            attempt=1,
            token=name,
            worker=name,
            result="",
            expires_seconds=0,
            own_db=ledger.connector.db,
            keep_ms=0,
        ),
        calls.deregister(worker=name, in_unacked=0, taken_ms=hour_ms),
    ]

    def run(client: Any) -> list[Any]:
        with client.pipeline(transaction=True) as pipe:
            for step in steps:
                # EVALSHA would need each script to be loaded before.
                pipe.eval(step.code.text, *step.call[1:])
            return list(pipe.execute())

    try:
        answers = [answer[0].decode() for answer in ledger.ask("self test", run)]
    except LedgerRefused as exc:
        if _FULL.search(str(exc.reply)):
            return
        raise
    if answers[3:5] != [Claimed.word, Settled.word]:
        raise LedgerRefused(
            f"The ledger's Redis at {ledger.connector.shown} does not keep what it is told: a task "
            f"was to be claimed and settled, and that was answered with {answers[3:5]}.",
            operation="self test",
        )
