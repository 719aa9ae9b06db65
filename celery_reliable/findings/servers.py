"""The part of the table that is about what an app meets: Redis and living workers.

A managed server hides some facts, which give no finding but W004.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from celery_reliable.findings.entries import (
    NO_START,
    SUPPORTED,
    Entry,
    Finding,
    Seen,
    ServerFacts,
    Setup,
    listed,
)

__all__ = [
    "DURABILITY",
    "FLEET",
    "NAMESPACE_SHARED",
    "NAMESPACE_TOO_NEW",
    "NOT_LOOKED_AT",
    "REDIS_FORBIDS",
    "REDIS_UNFIT",
    "SERVER",
    "neighbours",
]

#: The oldest server that has every command in use (`CLIENT LIST ID`, `BLMOVE`).
_LEAST_VERSION: Final = (6, 2)
#: Below it a clock fits: a beat is stored some time after it was made.
_CLOCK_SECONDS: Final = 5.0
_OWN_REDIS: Final = "give the ledger a Redis of its own (REDIS_URL in CELERY_RELIABLE)."
_NO_EVICTION: Final = (
    f"Run `CONFIG SET maxmemory-policy noeviction` and set it in redis.conf too, or {_OWN_REDIS}"
)
_AOF: Final = (
    "Set `appendonly yes` in redis.conf, and `appendfsync always` if not even a second may be lost."
)


def _evicts(facts: ServerFacts) -> Seen:
    policy, limit = facts.maxmemory_policy, facts.maxmemory
    if policy in (None, "noeviction") or limit is None:
        return None
    if not limit:
        return {"severity": "warning", "policy": policy, "limit": "no maxmemory yet"}
    return {"policy": policy, "limit": f"maxmemory {limit}"}


def _hidden(facts: ServerFacts) -> Seen:
    hidden = {
        "version": facts.version is None,
        "role": facts.role is None,
        "maxmemory and maxmemory-policy (eviction)": None
        in (facts.maxmemory_policy, facts.maxmemory),
        "appendonly": facts.appendonly is None,
        "appendfsync": bool(facts.appendonly) and facts.appendfsync is None,
        "save": facts.appendonly is False and facts.save is None,
        "min-replicas-to-write": facts.min_replicas is None
        and (facts.has_sentinel or facts.replicas != 0),
    }
    names = ", ".join(name for name, is_hidden in hidden.items() if is_hidden)
    why = f"it hides its {names} (INFO, CONFIG GET)."
    return {"what": "The ledger's Redis", "why": why} if names else None


def _not_durable(facts: ServerFacts) -> Seen:
    if facts.appendonly is not False or facts.save is None:
        return None
    # A rule such as "3600 1 300 100": seconds, and the changes within them.
    numbers = [int(word) for word in facts.save.split() if word.isdecimal()]
    if not numbers:
        return {"what": "nor snapshots", "cost": "any restart of it costs every task"}
    changes, seconds = min(zip(numbers[1::2], numbers[::2], strict=False))
    cost = f"a power cut or a kill of the server costs publications of up to {seconds} seconds"
    if changes > 1:
        cost += f", and of any time with fewer than {changes} changes"
    return {"what": f"but only snapshots (save {facts.save})", "cost": cost}


def _loses_seconds(facts: ServerFacts) -> Seen:
    if not facts.appendonly or facts.appendfsync == "always":
        return None
    costs = {
        "everysec": "the publications of the last second, two at most",
        "no": "the publications of half a minute or more",
    }
    return {
        "severity": "warning" if facts.appendfsync == "no" else "info",
        "fsync": facts.appendfsync or "(hidden)",
        "cost": costs.get(facts.appendfsync or "", "an unknown number of publications"),
    }


def neighbours(
    own: tuple[str, str], others: Iterable[tuple[str, str]], namespace: str
) -> list[Finding]:
    """Return what is wrong with the apps whose workers live in a namespace, each a name and a
    broker; *own* may be among them.
    """
    return [
        NAMESPACE_SHARED.found(
            # The same name at another broker may be the same project under another address.
            severity="warning" if name != own[0] else "info",
            other=f"{name!r} (broker {broker})",
            own=f"{own[0]!r} (broker {own[1]})",
            namespace=namespace,
        )
        for name, broker in sorted({*others} - {own, ("", "")})
    ]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, as 5.6 of 5.6.0."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    parts = re.sub(r"(\.0)+$", "", match[0]).split(".") if match else ()
    return tuple(int(part) for part in parts)


def _versions(setup: Setup) -> Iterator[dict[str, Any]]:
    for where in (setup.here, *setup.workers):
        for package, found in where.versions.items():
            least, below = SUPPORTED.get(package, ("", ""))
            is_old = bool(least) and _numbers(found) < _numbers(least)
            if is_old or (below and _numbers(found) >= _numbers(below)):
                pins = [f">={least}"] * bool(least) + [f"<{below}"] * bool(below)
                yield {
                    "severity": "error" if is_old else "warning",
                    "found": f"{package} {found} ({where.where})",
                    "wanted": package + ",".join(pins),
                }


def _clocks(setup: Setup) -> Iterator[dict[str, Any]]:
    for one in (setup.here, *setup.workers):
        ahead = one.clock_ahead_seconds or 0.0
        if abs(ahead) >= _CLOCK_SECONDS:
            off = f"{abs(ahead):.0f} seconds {'ahead of' if ahead > 0 else 'behind'}"
            yield {"where": one.where, "off": off}


def _witnesses(setup: Setup) -> Iterator[dict[str, Any]]:
    for reason in dict.fromkeys(one.no_witness for one in setup.workers if one.no_witness):
        names = [one.where for one in setup.workers if one.no_witness == reason]
        yield {"names": listed(names), "reason": reason}


def _other_versions(setup: Setup) -> Seen:
    own = setup.here.version
    names = [
        f"{one.where} ({one.version or 'unknown'})" for one in setup.workers if one.version != own
    ]
    return {"names": listed(names), "own": own} if names else None


SERVER: Final[tuple[Entry[ServerFacts], ...]] = (
    Entry("E005", "redis_evicts", "error",
        "The ledger's Redis has maxmemory-policy {policy}, and {limit}: when its memory is full, "
        "it deletes records.",
        _NO_EVICTION,
        "Tasks are lost without a trace. No worker starts, unless there is no maxmemory yet.",
        _evicts),
    Entry("E006", "redis_too_old", "error",
        "The ledger's Redis is version {version}. The oldest that works is 6.2.",
        f"Upgrade it, or {_OWN_REDIS}",
        "No worker starts: the server lacks commands.",
        # A version of another form says nothing about the commands.
        lambda facts: () < _numbers(facts.version or "") < _LEAST_VERSION
        and {"version": facts.version}),
    Entry("E007", "redis_cluster", "error",
        "The ledger's Redis is a node of a Redis Cluster, which is not supported: a task's record "
        "and its queue are written in one step, and may be on different nodes.",
        f"Use a single Redis (with replicas behind Sentinel), or {_OWN_REDIS}",
        NO_START,
        lambda facts: facts.is_cluster),
    Entry("E008", "redis_is_replica", "error",
        "The ledger's Redis is a replica, which takes no writes.",
        "Let the URL name the primary, or the Sentinels (sentinel://) that know it.",
        NO_START,
        lambda facts: facts.role in ("slave", "replica")),
)  # fmt: skip

NOT_LOOKED_AT: Final[Entry[ServerFacts]] = Entry("W004", "not_looked_at", "warning",
    "{what} could not be checked: {why}",
    "Run the doctor where it can reach this, with a Redis user who may read it. What a managed "
    "server hides is in its provider's console.",
    "Nobody knows whether it is right; this is no all-clear. A Redis that writes nothing to the "
    "disk, or that has lost its last writes, looks like any other.", _hidden)  # fmt: skip

DURABILITY: Final[tuple[Entry[ServerFacts], ...]] = (
    NOT_LOOKED_AT,
    Entry("W008", "redis_not_durable", "warning",
        "The ledger's Redis writes no append-only file {what}: {cost}.",
        _AOF,
        "A power cut, a kill or a restart of the server loses tasks, up to all of them.",
        _not_durable),
    Entry("W010", "redis_loses_seconds", "warning",
        "The ledger's Redis has appendfsync {fsync}: a power cut costs {cost}.",
        "Set `appendfsync always` if that is too much. It costs throughput.",
        "A power cut loses the latest publications. A kill of the server alone loses nothing.",
        _loses_seconds),
    Entry("W011", "failover_loses", "warning",
        "The ledger's Redis may fail over to a replica, and its min-replicas-to-write is 0: the "
        "old master goes on for some ten seconds, and these publications are lost.",
        "Set `min-replicas-to-write 1` and `min-replicas-max-lag 3` on all servers.",
        "Each failover, even a planned one, loses some ten seconds of publications.",
        lambda facts: facts.min_replicas == 0 and bool(facts.has_sentinel or facts.replicas)),
)  # fmt: skip

REDIS_FORBIDS: Final[Entry[None]] = Entry("E009", "redis_forbids", "error",
    "{problem}",
    "Allow it by ACL SETUSER. All that such a user needs: {rule}",
    "No worker starts. In running workers the steps that need the right fail, or wait for it."
)  # fmt: skip

NAMESPACE_SHARED: Final[Entry[None]] = Entry("W016", "namespace_shared", "warning",
    "The app {other} has workers in the namespace {namespace!r}, which the app {own} uses too.",
    "If these are two projects, give one of them another NAMESPACE in CELERY_RELIABLE.",
    "Each app recovers the other's tasks by its own limits, times and result backend.")  # fmt: skip

REDIS_UNFIT: Final[Entry[None]] = Entry("E012", "redis_unfit", "error",
    "The ledger's Redis does not execute a task's steps: {problem}",
    "Let REDIS_URL name a Redis or a Valkey itself, and not a proxy that changes commands.",
    "No worker starts: a test task could not be recorded, claimed and settled.")  # fmt: skip

NAMESPACE_TOO_NEW: Final[Entry[None]] = Entry("E014", "namespace_too_new", "error",
    "A later release uses the namespace: {problem}",
    "Upgrade celery-reliable here, or give this app a NAMESPACE of its own.",
    f"{NO_START} Workers of a later release write there.")  # fmt: skip

#: Of living workers, and of this process.
FLEET: Final[tuple[Entry[Setup], ...]] = (
    Entry("E013", "version_unsupported", "error",
        "{found} is not a release that celery-reliable was made for.",
        'pip install "{wanted}"',
        "Too old: faults that a later release mended break promises. Too new: nobody has tried it.",
        _versions),
    Entry("W023", "worker_of_another_version", "warning",
        "Living workers run another release than {own}: {names}.",
        "Finish the upgrade: restart these workers.",
        "Nothing is lost, but these workers do not do what is new in the later release.",
        _other_versions),
    Entry("W024", "clock_differs", "warning",
        "The clock of {where} is {off} that of the ledger's Redis.",
        "Let both hosts set their clocks by NTP (chrony, systemd-timesyncd).",
        "Tasks with an ETA begin, and tasks with an expiry are dropped, too early or too late.",
        _clocks),
    Entry("W025", "no_witness", "warning",
        "Only the end of the lease would show the death of {names}.",
        "{reason}",
        "A killed worker's tasks come back after LEASE_SECONDS, and not within seconds.",
        _witnesses),
)  # fmt: skip
