"""The settings: one frozen object, checked as a whole.

`ReliableConfig.from_mapping` reads `CELERY_RELIABLE` of Django's settings, or `app.conf.reliable`
of a plain Celery app. One error tells all that is wrong with them: the names, the values and
what to change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from celery_reliable.exceptions import ConfigurationError, refuse
from celery_reliable.settings.values import (
    Rule,
    did_you_mean,
    misfits,
    or_none,
    seconds,
    shown_value,
    that,
    url,
    whole,
)

__all__ = ["ReliableConfig"]

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
    #: Where the broker is a Redis: a message that its worker was delivered this long ago and could
    #: not begin goes back to the front of its queue, and the worker fetches no more than it begins
    #: within that time. 0: what is fetched stays.
    give_back_seconds: float = _value(1.0, seconds())
    #: On a broker other than Redis: a message that was delivered this long ago is acknowledged if
    #: its task runs, and given back if it waits. Well below RabbitMQ's `consumer_timeout`.
    acknowledge_seconds: float = _value(300.0, seconds(above=True))
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
    #: Whether a task runs unprotected when the ledger has not answered for as long as a lease
    #: lasts; otherwise it waits.
    fail_open: bool = _value(False, _FLAG)

    def __post_init__(self) -> None:
        rules = {item.name: item.metadata["rule"] for item in fields(self)}
        given = {name: getattr(self, name) for name in rules}
        wrong = [
            f"{name.upper()} is {shown_value(name, value)}: expected {expected}."
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
            f"REDIS_URL is {shown_value('redis_url', config.redis_url)} and CACHE is "
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
