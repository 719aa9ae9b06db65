"""What a user of Redis needs to be allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["acl_rule"]

#: Of a namespace; `celery*` stands for queues, results and unacked hashes.
_KEYS: Final = ("~{{{namespace}:0}}:*", "~celery*", "~unacked*", "~_kombu.*", "~*.pidbox*", "&*")
_COMMANDS: Final = """
    -@all +hello +ping +info +time +multi +exec +discard +eval +evalsha +script|load +script|exists
    +select +client|id +client|list +config|get
    +get +set +setex +mget +del +exists +expire +pexpire +pttl
    +hget +hmget +hset +hdel +hgetall +hkeys +hlen +hstrlen +hexists +hincrby +hscan
    +zadd +zrem +zscore +zcard +zcount +zlexcount +zrank +zrange +zrevrange +zrangebyscore
    +zrevrangebyscore +xadd +xread +xrevrange
    +sadd +srem +smembers +sismember +llen +lindex +lrange +lpush +rpush +rpop +brpop
    +lmove +blmove
    +watch +unwatch +publish +subscribe +unsubscribe +psubscribe +punsubscribe
"""


def acl_rule(namespace: str, *, queues: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the least that a user needs whose database holds broker, ledger and results: the words
    of `ACL SETUSER`, without his name and password.

    *queues*: names of queues; those that no other pattern fits get one of their own.
    """
    own = [f"~{name}*" for name in sorted(set(queues)) if not name.startswith("celery")]
    keys = [pattern.format(namespace=namespace) for pattern in _KEYS]
    return ("resetkeys", "resetchannels", *keys[:-1], *own, keys[-1], *_COMMANDS.split())
