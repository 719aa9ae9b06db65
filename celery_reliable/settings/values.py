"""What the value of a setting or of an option has to be, and the names that may be meant.

A rule returns what was expected in place of a value, or "" if the value will do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

__all__ = [
    "MAX_SECONDS",
    "REDIS_SCHEMES",
    "Rule",
    "acl_rule",
    "did_you_mean",
    "misfits",
    "nearest",
    "one_of",
    "or_none",
    "sanitized_url",
    "seconds",
    "shown_value",
    "split_urls",
    "that",
    "url",
    "whole",
]

#: Of a namespace; `celery*` stands for queues, results and unacked hashes.
_KEYS: Final = ("~{{{namespace}:0}}:*", "~celery*", "~unacked*", "~_kombu.*", "~*.pidbox*", "&*")
_COMMANDS: Final = """
    -@all +hello +ping +info +time +multi +exec +discard +eval +evalsha +script|load +script|exists
    +select +client|id +client|list +config|get
    +get +set +setex +mget +del +exists +expire +pexpire +pttl
    +hget +hmget +hset +hdel +hgetall +hkeys +hlen +hstrlen +hexists +hincrby +hscan
    +zadd +zrem +zscore +zcard +zcount +zlexcount +zrank +zrange +zrevrange +zrangebyscore
    +zrevrangebyscore +xadd +xrevrange
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


#: What the URL of a Redis may begin with: a `REDIS_URL`, or the broker's.
REDIS_SCHEMES: Final = ("redis", "rediss", "unix", "redis+socket", "rediss+socket", "sentinel")

_BEGINNINGS = tuple(f"{scheme}://" for scheme in REDIS_SCHEMES)


def sanitized_url(url: str) -> str:
    """Return `url` without user and password, also when it is malformed or a list of URLs."""
    return ";".join(_sanitized(part) for part in split_urls(url))


def split_urls(url: str) -> list[str]:
    """Return the URLs of a list, as Celery writes them for Sentinels."""
    return re.split(r";(?=[\w+]+://)", url.rstrip(";"))


def _sanitized(url: str) -> str:
    until_at = re.compile(r"^([\w+]+://)?.*@", flags=re.DOTALL)
    found = re.search(r"(?i)password=", url)
    if found is not None and "@" in url[found.end() :]:
        # Either the "@" is this password's, or it ends another that has "password=" in it.
        return until_at.sub(r"\1**", url[: url.rindex("@") + 1])
    # The last "@" ends the password even where it was not quoted as it should be.
    return re.sub(r"(?i)(password=)[^&]*", r"\1**", until_at.sub(r"\1**@", url))


Rule = Callable[[Any], str]

#: Longer times are mistakes (milliseconds, mostly), and sums of them must stay exact in Lua.
MAX_SECONDS: Final = 3650 * 24 * 60 * 60.0


def that(fits: Callable[[Any], object], expected: str) -> Rule:
    """Return the rule that a value fits."""
    return lambda value: "" if fits(value) else expected


def or_none(rule: Rule, otherwise: str = "None") -> Rule:
    """Return the rule that takes None, too; *otherwise*: what None means."""
    expected = rule(object())
    return lambda value: "" if value is None or not rule(value) else f"{expected}, or {otherwise}"


def misfits(rules: Mapping[str, Rule], given: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield each of the values *given* that cannot work: its name, itself, and what was expected.

    Names without a rule are left out.
    """
    for name, rule in rules.items():
        if name in given and (expected := rule(given[name])):
            yield name, given[name], expected


def seconds(least: float = 0.0, *, above: bool = False) -> Rule:
    """Return the rule of a time of at least so many seconds, or *above* it."""

    def fits(value: Any) -> bool:
        # A bool is an int in Python; here it is a mistake.
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return False
        # Comparisons also refuse NaN, infinity, and whole numbers too large for a float.
        is_enough = value > least if above else value >= least
        return bool(is_enough and value <= MAX_SECONDS)

    limit = f"more than {least:g}" if above else f"at least {least:g}"
    return that(fits, f"a number of seconds, {limit} and at most {MAX_SECONDS:.0f}")


def whole(least: int, most: int | None = None) -> Rule:
    """Return the rule of a count."""

    def fits(value: Any) -> bool:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return bool(is_whole and value >= least and (most is None or value <= most))

    upper = "" if most is None else f" and at most {most}"
    return that(fits, f"a whole number, at least {least}{upper}")


def one_of(*known: object) -> Rule:
    """Return the rule that a value is one of some."""

    def fits(value: Any) -> bool:
        # 1 is equal to True, and a mistake.
        of_kind = (one for one in known if isinstance(one, bool) == isinstance(value, bool))
        return any(value == one for one in of_kind)

    return that(fits, f"one of {', '.join(map(repr, known))}")


#: The rule of the URL of a Redis.
url: Final = that(
    lambda value: isinstance(value, str) and value.startswith(_BEGINNINGS),
    f"the URL of a Redis (beginning with one of {', '.join(_BEGINNINGS)})",
)


def shown_value(name: str, value: object) -> str:
    """Return a setting as an error or a repr shows it: without a password."""
    if name != "redis_url" or value is None:
        return repr(value)
    return repr(sanitized_url(value)) if isinstance(value, str) else f"a {type(value).__name__}"


def nearest(name: object, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the one of *known* that is probably meant; empty: none.

    *cutoff*: how similar it must be (difflib's ratio), in whatever case.
    """
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else ""


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the question whether another name is meant; empty: there is none that is near."""
    near = nearest(name, known, cutoff)
    return f"Did you mean {near!r}?" if near else ""
