"""Facts about a server or an app, checked against what the ledger needs.

Nothing here talks to a server: callers give the facts and decide what to do with the findings. A
fact that could not be read (managed servers hide some) is `None`, and gives no finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from celery_reliable.model import Finding
from celery_reliable.settings.urls import REDIS_SCHEMES

__all__ = [
    "SINGLE_PROCESS_SCHEMES",
    "UNPROTECTED",
    "AppFacts",
    "ServerFacts",
    "check_app",
    "check_neighbours",
    "check_server",
]

#: The oldest server that has every command in use (`CLIENT LIST ID`, `BLMOVE`).
_LEAST_VERSION = (6, 2)

#: Celery's own default on Redis.
_DEFAULT_VISIBILITY_TIMEOUT_SECONDS = 3600.0

#: Brokers that nobody but this very process can reach.
SINGLE_PROCESS_SCHEMES = ("memory",)
UNPROTECTED = "celery_reliable.unprotected"

_OWN_REDIS = "give the ledger a Redis of its own by REDIS_URL in CELERY_RELIABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What is known of the Redis that holds the ledger.

    Attributes:
        version: such as "6.2.14".
        role: "master" or "slave", in Redis's words.
        maxmemory: limit in bytes; 0 for none.
        maxmemory_policy: what happens at the limit.
        appendonly: whether an append-only file is written.
        appendfsync: when it is forced to the disk: "always", "everysec" or "no".
        save: the snapshot rule as `CONFIG GET save` gives it; empty for none.
        is_cluster: whether it is a node of a Redis Cluster.
        replicas: how many follow it.
        min_replicas: how many replicas must be connected for it to take writes.
        has_sentinel: whether Sentinels say which server it is.
    """

    version: str | None = None
    role: str | None = None
    maxmemory: int | None = None
    maxmemory_policy: str | None = None
    appendonly: bool | None = None
    appendfsync: str | None = None
    save: str | None = None
    is_cluster: bool | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    has_sentinel: bool = False

    @classmethod
    def from_info(cls, info: Mapping[str, object], *, has_sentinel: bool = False) -> ServerFacts:
        """Read the facts from the fields of `INFO`, as text or as a client parsed them, and from
        what `CONFIG GET` says, which not every server allows.
        """

        def text(name: str) -> str | None:
            value = info.get(name)
            return None if value is None else str(value)

        def number(name: str) -> int | None:
            value = text(name)
            return None if value is None else int(value)

        append, cluster = text("aof_enabled"), text("cluster_enabled")
        if append is None and text("appendonly") is not None:
            append = "1" if text("appendonly") == "yes" else "0"
        return cls(
            version=text("redis_version"),
            role=text("role"),
            maxmemory=number("maxmemory"),
            maxmemory_policy=text("maxmemory_policy") or text("maxmemory-policy"),
            appendonly=None if append is None else append == "1",
            appendfsync=text("appendfsync"),
            save=text("save"),
            is_cluster=None if cluster is None else cluster == "1",
            replicas=number("connected_slaves"),
            min_replicas=number("min-replicas-to-write"),
            has_sentinel=has_sentinel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """What is known of a Celery app.

    Attributes:
        broker_transport: the scheme of the broker's URL.
        redis_url_given: whether `REDIS_URL` is set.
        cache: the alias that `CACHE` names.
        is_eager: tasks run where they are called, so nothing is published.
        visibility_timeout_seconds: from the broker's transport options; `None` for the default.
        plain_time_limits: hard time limit in seconds of each task without protection that
            acknowledges late, by task name.
        plain_requeued_when_lost: names of the tasks without protection that acknowledge late and
            are requeued when their process is killed.
        plain_options: options of ours that a task without protection was given, by task name.
    """

    broker_transport: str
    redis_url_given: bool = False
    cache: str | None = None
    is_eager: bool = False
    visibility_timeout_seconds: float | None = None
    plain_time_limits: Mapping[str, float] | None = None
    plain_requeued_when_lost: tuple[str, ...] = ()
    plain_options: Mapping[str, Sequence[str]] | None = None


def check_server(facts: ServerFacts) -> list[Finding]:
    """Return what keeps this server from holding a ledger, and what weakens one there."""
    return [
        *_server_version(facts),
        *_server_kind(facts),
        *_server_role(facts),
        *_server_eviction(facts),
    ]


def check_app(facts: AppFacts) -> list[Finding]:
    """Return what keeps this app from being protected, and which plain tasks are at risk."""
    return [*_ledger_place(facts), *_plain_tasks(facts)]


def check_neighbours(
    own: tuple[str, str], others: Iterable[tuple[str, str]], namespace: str
) -> list[Finding]:
    """Return which other apps have workers in this app's namespace; each is a name and a broker.

    The same name at another broker may be the same project under another address.
    """
    found = []
    for name, broker in sorted(set(others) - {own, ("", "")}):
        level: Literal["warning", "info"] = "warning" if name != own[0] else "info"
        found.append(
            Finding(
                "celery_reliable.namespace_shared",
                level,
                f"The app {name!r} (broker {broker}) has workers in the namespace {namespace!r} of "
                f"this ledger, and this is the app {own[0]!r} (broker {own[1]}): each would look "
                "after the other's tasks, by its own settings.",
                "If they are two projects, give one of them a NAMESPACE of its own in "
                "CELERY_RELIABLE.",
            )
        )
    return found


def _server_version(facts: ServerFacts) -> Iterator[Finding]:
    numbers = re.match(r"(\d+)(?:\.(\d+))?\b", facts.version or "")
    # A version of another form says nothing about the commands.
    if numbers and (int(numbers[1]), int(numbers[2] or 0)) < _LEAST_VERSION:
        least = ".".join(str(number) for number in _LEAST_VERSION)
        yield Finding(
            "celery_reliable.redis_too_old",
            "error",
            f"The ledger's Redis is version {facts.version}; {least} is the oldest that will do.",
            f"Upgrade it, or {_OWN_REDIS}.",
        )


def _server_kind(facts: ServerFacts) -> Iterator[Finding]:
    if facts.is_cluster:
        yield Finding(
            "celery_reliable.redis_cluster",
            "error",
            "The ledger's Redis is a node of a Redis Cluster, which is not supported: a task's "
            "record and its queue are written in one step, and would be on different nodes.",
            f"Use a single Redis, with replicas behind Sentinel if need be, or {_OWN_REDIS}.",
        )


def _server_role(facts: ServerFacts) -> Iterator[Finding]:
    if facts.role in ("slave", "replica"):
        yield Finding(
            "celery_reliable.redis_is_replica",
            "error",
            "The ledger's Redis is a replica, which takes no writes.",
            "Let the URL name the primary, or name the Sentinels (sentinel://) that know it.",
        )


def _server_eviction(facts: ServerFacts) -> Iterator[Finding]:
    policy = facts.maxmemory_policy
    if policy is None or policy == "noeviction":
        return
    way_out = (
        "Run `CONFIG SET maxmemory-policy noeviction` and set it in redis.conf too, or "
        f"{_OWN_REDIS}."
    )
    if facts.maxmemory == 0:
        yield Finding(
            "celery_reliable.redis_would_evict",
            "warning",
            f"The ledger's Redis has maxmemory-policy {policy}. It has no maxmemory yet; once it "
            "gets one, it may throw records away, and with them tasks.",
            way_out,
        )
    elif facts.maxmemory is not None:
        yield Finding(
            "celery_reliable.redis_evicts",
            "error",
            f"The ledger's Redis has maxmemory {facts.maxmemory} and maxmemory-policy {policy}: "
            "when memory runs out it throws records away, and with them tasks.",
            way_out,
        )


def _ledger_place(facts: AppFacts) -> Iterator[Finding]:
    # A ledger is needed by what publishes a task.
    given = facts.redis_url_given or facts.cache is not None or facts.is_eager
    if not given and facts.broker_transport in SINGLE_PROCESS_SCHEMES:
        yield Finding(
            UNPROTECTED,
            "warning",
            f"The broker is {facts.broker_transport}://, which lives in one process: reliable "
            "tasks are published and run as by Celery alone, and nothing is promised of them.",
            "That is for tests. Give them a Redis where they are to see what is promised.",
        )
    elif not given and facts.broker_transport not in REDIS_SCHEMES:
        yield Finding(
            "celery_reliable.no_redis",
            "error",
            f"The broker is {facts.broker_transport!r}, which is no Redis, and CELERY_RELIABLE "
            "(app.conf.reliable without Django) does not say where the ledger's Redis is.",
            "Set REDIS_URL there, or CACHE to the alias of a django-redis cache.",
        )
    if facts.cache is not None:
        yield Finding(
            "celery_reliable.cache_can_be_cleared",
            "warning",
            f"The ledger is on the Redis of the cache {facts.cache!r}: cache.clear() empties that "
            "database, records included.",
            "Set REDIS_URL instead of CACHE, at least with another database number.",
        )


def _plain_tasks(facts: AppFacts) -> Iterator[Finding]:
    if facts.plain_options:
        given = [f"{name} ({', '.join(o)})" for name, o in facts.plain_options.items()]
        yield Finding(
            "celery_reliable.options_without_base",
            "warning",
            f"Tasks with options of ReliableTask, but another base: {_listed(given)}. There they "
            "do nothing.",
            "Give the tasks base=ReliableTask, or leave the options out.",
        )
    if facts.plain_requeued_when_lost:
        yield Finding(
            "celery_reliable.plain_task_in_circles",
            "warning",
            "Plain tasks with acks_late and reject_on_worker_lost: "
            f"{_listed(facts.plain_requeued_when_lost)}. One that kills its process is requeued "
            "without end.",
            "Give them base=ReliableTask, or switch reject_on_worker_lost off.",
        )
    if facts.broker_transport not in REDIS_SCHEMES:
        return
    timeout = facts.visibility_timeout_seconds
    if timeout is None:
        timeout = _DEFAULT_VISIBILITY_TIMEOUT_SECONDS
    limits = facts.plain_time_limits or {}
    longer = sorted(name for name, limit in limits.items() if limit > timeout)
    if longer:
        longest = max(limits[name] for name in longer)
        yield Finding(
            "celery_reliable.plain_task_outlives_visibility",
            "warning",
            f"visibility_timeout is {timeout:g} seconds, and plain tasks with acks_late may run "
            f"for up to {longest:g}: {_listed(longer)}. What a worker without celery_reliable runs "
            "for longer is started a second time meanwhile.",
            f"Set visibility_timeout in broker_transport_options to more than {longest:g}, or "
            "give the tasks base=ReliableTask.",
        )


def _listed(names: Iterable[str], at_most: int = 5) -> str:
    ordered = sorted(names)
    more = len(ordered) - at_most
    return ", ".join(ordered[:at_most]) + (f" and {more} more" if more > 0 else "")
