"""The settings: one frozen object, checked as a whole, and what their values have to be.

`ReliableConfig.from_mapping` reads `CELERY_RELIABLE` of Django's settings, or `app.conf.reliable`
of a plain Celery app. One error tells all that is wrong with them: the names, the values and
what to change.  A rule, also one of an option, returns what was expected in place of a value, or
"" if the value will do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from celery_reliable.exceptions import ConfigurationError, refuse

__all__ = [
    "MAX_SECONDS",
    "REDIS_SCHEMES",
    "ReliableConfig",
    "Rule",
    "acl_rule",
    "did_you_mean",
    "misfits",
    "nearest",
    "one_of",
    "or_none",
    "sanitized_url",
    "seconds",
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

_WHERE: Final = "CELERY_RELIABLE (app.conf.reliable without Django): "
_DAY_SECONDS: Final = 24 * 60 * 60.0
# A script hands a batch to `unpack`, which ends with an error at about 8 000 values.
_MAX_BATCH: Final = 5_000
# More frequent passes would only load the server.
_MIN_SWEEP_SECONDS: Final = 0.1
# Below it, an ordinary pause (a garbage collection, a busy host) looks like a death.
_MIN_LEASE_SECONDS: Final = 1.0
# An outage shows by a gap of 2.5 intervals between passes, and must show before a lease can lapse.
# A lease is renewed every quarter, so at least three quarters are left when the outage begins.
_PASSES_IN_A_LEASE: Final = 4
# How many passes it may take until a lapsed worker's tasks are back in their queues.
_PASSES_TO_RECOVER: Final = 3


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


def _shown_value(name: str, value: object) -> str:
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


def _value(default: Any, rule: Rule, *, is_secret: bool = False) -> Any:
    """Declare a setting."""
    return field(default=default, metadata={"rule": rule}, repr=not is_secret)


_FLAG: Final = that(lambda value: isinstance(value, bool), "True or False")
# Braces decide which part of a key chooses its hash slot; that part is the ledger's.
_NAMESPACE: Final = that(
    lambda value: isinstance(value, str) and re.fullmatch(r"[^\s{}]+", value),
    "a text that is not empty, without whitespace and braces",
)
_ALIAS: Final = or_none(
    that(
        lambda value: isinstance(value, str) and value.strip(),
        "the name of an entry of Django's CACHES",
    )
)
# Probes are run in a folder of their own.
_FOLDER: Final = or_none(
    that(lambda value: isinstance(value, str) and value.startswith("/"), "an absolute path")
)


class _InMs:
    """A setting in milliseconds, as the ledger counts them."""

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def __get__(self, config: ReliableConfig, owner: Any = None) -> int:
        return round(1000 * float(getattr(config, self._setting)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliableConfig:
    """The settings of one Celery app. Each field is a setting in lower case.

    Raises:
        ConfigurationError: a value, or a combination of values, cannot work. It names all of them.
    """

    #: URL of the ledger's Redis. Without it and without `CACHE` that is the broker's; where the
    #: broker is no Redis, one of the two must be given.
    redis_url: str | None = _value(None, or_none(url, "None for the broker's"), is_secret=True)
    #: Instead of `REDIS_URL`: alias of a django-redis cache whose Redis holds the ledger. Beware:
    #: `cache.clear()` empties it.
    cache: str | None = _value(None, _ALIAS)
    #: What every key of the ledger begins with. Projects that share a Redis need one each.
    namespace: str = _value("reliable", _NAMESPACE)
    #: How long a worker that is not heard of keeps its work. A lease is renewed every quarter of
    #: it.
    lease_seconds: float = _value(10.0, seconds(_MIN_LEASE_SECONDS))
    #: How long a worker's connection may stay lost before that counts as a death; 0: never. Where
    #: the server or something before it does not tell (`celery reliable workers` says so), only
    #: the lease does.
    witness_seconds: float = _value(1.5, seconds())
    #: Interval of the sweeper's passes.
    sweep_seconds: float = _value(2.0, seconds(_MIN_SWEEP_SECONDS))
    #: At most so many recoveries in one pass.
    sweep_batch: int = _value(500, whole(1, _MAX_BATCH))
    #: When to look after a queued task that nobody has begun. As long as its message waits, that
    #: is done less and less often, at least once in ten times that.
    queued_seconds: float = _value(60.0, seconds(above=True))
    #: How many losses a task may have; with one more it is dead-lettered.
    max_losses: int = _value(3, whole(0))
    #: A worker whose main loop has made no turn for this long stops renewing its lease.
    stall_seconds: float = _value(30.0, seconds(above=True))
    #: How long a dead letter is kept.
    dead_letter_seconds: float = _value(30 * _DAY_SECONDS, seconds(above=True))
    #: How many dead letters are kept. Beyond it the largest group (`dead-letters groups`) loses its
    #: oldest letters first. `status --check` and a line in the log (`dead_letters_trimmed`) report
    #: it.
    dead_letter_max: int = _value(10_000, whole(1))
    #: How many tasks that have ended can still be asked about (`celery reliable show`), the newest
    #: ones. Only those are kept to which something happened: a loss, a retry, a burial, a replay.
    #: 0: none.
    keep_ended: int = _value(10_000, whole(0))
    #: Of the other ended tasks one in this many is kept too; 0: none. A task that is not kept
    #: costs nothing.
    keep_ended_one_in: int = _value(0, whole(0))
    #: Where each worker says once a second, in a file, whether it lives and is ready, for
    #: `celery-reliable-probe`. None: nowhere, and nothing is looked at for it.
    probe_directory: str | None = _value(None, _FOLDER)
    #: How long the orchestrator waits between SIGTERM and SIGKILL; only the doctor reads it. None:
    #: not known.
    grace_seconds: float | None = _value(None, or_none(seconds(above=True)))
    #: Whether a task that could not be sent stays recorded, for the sweeper to send it later,
    #: instead of an error that is raised.
    outbox: bool = _value(False, _FLAG)

    def __post_init__(self) -> None:
        rules = {item.name: item.metadata["rule"] for item in fields(self)}
        given = {name: getattr(self, name) for name in rules}
        wrong = [
            f"{name.upper()} is {_shown_value(name, value)}: expected {expected}."
            for name, value, expected in misfits(rules, given)
        ]
        # Comparing values that are no numbers would hide the problem behind a TypeError.
        refuse(wrong or _combination_problems(self), _WHERE)

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, object] | None, *, flat: Collection[str] = ()
    ) -> ReliableConfig:
        """Build the settings from a mapping with upper-case names; what it lacks has its default.

        Args:
            mapping: `CELERY_RELIABLE`, or `None` for all defaults.
            flat: names of settings that were given outside of it, where nothing reads them.

        Raises:
            ConfigurationError: an unknown name, or values that cannot work. It names all of them.
        """
        problems = [
            f"CELERY_RELIABLE_{name} (reliable_{name.lower()}) is set, and nothing reads it: the "
            f"settings are in one dictionary. Write CELERY_RELIABLE = {{{name!r}: ...}} instead."
            for name in flat
        ]
        if mapping is None:
            mapping = {}
        if not isinstance(mapping, Mapping):
            # The settings are the user's, and untyped.
            kind = type(mapping).__name__  # type: ignore[unreachable]
            refuse([f"expected a dictionary of settings, got a {kind}."], _WHERE)
        names = {item.name.upper(): item.name for item in fields(cls)}
        known = f"The settings are {', '.join(names)}."
        problems += [
            f"there is no setting {name!r}. {did_you_mean(name, names) or known}"
            for name in mapping
            if name not in names
        ]
        given: dict[str, Any] = {
            names[name]: value for name, value in mapping.items() if name in names
        }
        try:
            config = cls(**given)
        except ConfigurationError as error:
            problems.extend(error.problems)
        refuse(problems, _WHERE)
        return config

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings, in upper case."""
        return [item.name.upper() for item in fields(cls)]

    @property
    def heartbeat_seconds(self) -> float:
        """Interval at which a worker renews its lease: a quarter of it."""
        return self.lease_seconds / 4

    lease_ms = _InMs("lease_seconds")
    # 0: no witness.
    witness_ms = _InMs("witness_seconds")
    sweep_ms = _InMs("sweep_seconds")
    queued_ms = _InMs("queued_seconds")
    dead_letter_ms = _InMs("dead_letter_seconds")


def _combination_problems(config: ReliableConfig) -> Iterator[str]:
    lease, sweep, queued = config.lease_seconds, config.sweep_seconds, config.queued_seconds
    if config.redis_url is not None and config.cache is not None:
        yield (
            f"REDIS_URL is {_shown_value('redis_url', config.redis_url)} and CACHE is "
            f"{config.cache!r}: both say where the ledger is. Remove one of them."
        )
    if sweep * _PASSES_IN_A_LEASE > lease:
        yield (
            f"SWEEP_SECONDS is {sweep:g} and LEASE_SECONDS is {lease:g}: passes so rare could "
            f"not tell an outage of Redis from a dead worker. Set SWEEP_SECONDS to at most "
            f"{lease / _PASSES_IN_A_LEASE:g}, or LEASE_SECONDS to at least "
            f"{sweep * _PASSES_IN_A_LEASE:g}."
        )
    if config.witness_seconds >= lease:
        yield (
            f"WITNESS_SECONDS is {config.witness_seconds:g} and LEASE_SECONDS is {lease:g}: the "
            f"lease would lapse before the witness speaks. Set WITNESS_SECONDS below "
            f"{lease:g}, or to 0 to do without it."
        )
    least_queued = lease + _PASSES_TO_RECOVER * sweep
    if queued < least_queued:
        yield (
            f"QUEUED_SECONDS is {queued:g}, LEASE_SECONDS is {lease:g} and SWEEP_SECONDS is "
            f"{sweep:g}: a queued task would be sent again while a dead worker's copy of it is "
            f"about to be returned. Set QUEUED_SECONDS to at least {least_queued:g} (the lease "
            f"and {_PASSES_TO_RECOVER} passes)."
        )
