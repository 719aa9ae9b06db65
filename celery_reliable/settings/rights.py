"""What a user of Redis needs to be allowed, and what is said of one who is not.

Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from celery_reliable.model import Finding

__all__ = ["acl_rule", "acl_words", "check_rights"]

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


def acl_words(missing: Iterable[str], rule: Iterable[str]) -> list[str]:
    """Return the words of `ACL SETUSER` that give a user what he lacks, as `denied` names it: where
    there is one, the pattern of *rule* that fits a key.
    """
    patterns = [word[1:] for word in rule if word.startswith("~")]
    return list(dict.fromkeys(_word(one, patterns) for one in missing))


def check_rights(what: str, missing: Sequence[str], rule: Sequence[str]) -> list[Finding]:
    """Return findings about commands and keys that are *missing* in the rights of a server's user.

    *what*: names the server in the messages; *rule*: the words of `acl_rule`.
    """
    findings = []
    if "INFO" in missing:
        findings.append(
            Finding(
                "celery_reliable.redis_hides_info",
                "warning",
                f"{what} does not let its user run INFO: a server that has lost records cannot be "
                "told from one that has not, so a late copy of a task that has ended may run "
                "again, and nothing is known of what a power cut would cost.",
                "Allow it (ACL SETUSER ... +info).",
            )
        )
    needed = [one for one in missing if one != "INFO"]
    if needed:
        findings.append(
            Finding(
                "celery_reliable.redis_forbids",
                "error",
                f"{what} does not let its user have {', '.join(needed)}.",
                f"Allow it (ACL SETUSER ... {' '.join(acl_words(needed, rule))}). All that such a "
                f"user needs: {' '.join(rule)}",
            )
        )
    return findings


def _word(missing: str, patterns: Iterable[str]) -> str:
    if missing.startswith("the channel "):
        return "&*"
    if not missing.startswith("the key "):
        return f"+{missing.lower()}"
    key = missing.removeprefix("the key ")
    return "~" + next((one for one in patterns if fnmatchcase(key, one)), f"{key}*")
