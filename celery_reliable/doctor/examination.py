"""The whole examination of a set-up, with or without its servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from celery import Celery
from celery.backends.base import DisabledBackend
from celery.backends.redis import RedisBackend
from kombu.utils.encoding import bytes_to_str

from celery_reliable.app import Reliable, reliable_of
from celery_reliable.broker import UNACKED_LIST_PREFIX, UNACKED_PREFIX
from celery_reliable.compat import Part, missing
from celery_reliable.doctor.setups import setup_of, stored_setup
from celery_reliable.exceptions import (
    ConfigurationError,
    LedgerRefused,
    LedgerUnavailable,
    one_line,
)
from celery_reliable.findings import (
    DURABILITY,
    FLEET,
    NAMESPACE_TOO_NEW,
    NO_REDIS,
    NOT_LOOKED_AT,
    REDIS_UNFIT,
    ROWS,
    SERVER,
    SETTINGS_WRONG,
    SETUP,
    START,
    Finding,
    ServerFacts,
    Setup,
    look,
    neighbours,
    rights,
    worst_first,
)
from celery_reliable.ledger import (
    Command,
    Ledger,
    connect,
    denied,
    ledger_commands,
    on_key,
    self_test,
)
from celery_reliable.results import is_celerys_redis, results_server_of
from celery_reliable.settings import acl_rule

__all__ = [
    "Examination",
    "ask_broker",
    "ask_hooks",
    "ask_ledger",
    "ask_results",
    "examine",
]

#: What kombu, unacked hashes and the sweeper do with each kind of key.
_QUEUE: Final = ("BRPOP", "LINDEX", "LLEN", "LPUSH", "RPOP", "RPUSH")
_UNACKED: Final = ("HDEL", "HEXISTS", "HGET", "HKEYS", "HLEN", "HMGET", "HSET")
_SET: Final = ("SADD", "SMEMBERS", "SREM")
_RESULT: Final = ("GET", "PUBLISH", "SET", "SETEX")
#: The end of a key that stands for all unacked hashes, or all tasks.
_SOME: Final = "rights"


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, errors first, and whether the ledger could not be reached."""

    findings: Sequence[Finding]
    is_ledger_away: bool = False


def examine(
    app: Celery,
    *,
    tasks: bool = True,
    servers: bool = True,
    patience_seconds: float = 3.0,
) -> Examination:
    """Return what is wrong with the set-up of an app.  This changes nothing, and raises nothing for
    what is wrong.

    Args:
        app: the app.
        tasks: import the app's tasks and finalize it; else they are looked at only where that has
            been done.
        servers: ask the servers, and look at what living workers report.
        patience_seconds: how long to go on asking a Redis that does not answer.
    """
    found: list[Finding] = []
    if tasks:
        try:
            app.loader.import_default_modules()
            app.finalize()
        except Exception as exc:
            found.append(_unseen("Tasks", f"importing them failed: {one_line(exc)}."))
    reliable = reliable_of(app)
    try:
        setup = setup_of(reliable, app.tasks if app.finalized else {})
    except ConfigurationError as exc:
        wrong = [SETTINGS_WRONG.found(problem=problem) for problem in exc.problems]
        return Examination(worst_first([*found, *wrong]))
    setup = replace(setup, **_results(reliable), is_eager=bool(app.conf.task_always_eager))
    is_asked = servers and not reliable.is_unprotected
    try:
        reliable.connector()
    except ConfigurationError as exc:
        is_asked = False
        if not (reliable.is_unprotected or setup.is_eager):
            found.append(NO_REDIS.found(problem=str(exc)))
    of_servers, setup, is_away = (
        _ask(reliable, setup, patience_seconds) if is_asked else ([], setup, False)
    )
    found += [*look(START, setup), *look(SETUP, setup), *look(FLEET, setup), *of_servers]
    found += ask_hooks(reliable, setup.here.pool)
    return Examination(worst_first(found), is_away)


def _ask(
    reliable: Reliable, setup: Setup, patience_seconds: float
) -> tuple[list[Finding], Setup, bool]:
    """Ask servers and living workers; return what is wrong, the set-up with what they report, and
    whether the ledger could not be reached.
    """
    found, is_away = [], False
    try:
        with closing(reliable.own_ledger(patience_seconds=patience_seconds)) as ledger:
            of_ledger = ask_ledger(reliable, ledger)
            found += of_ledger
            if not _has_error(of_ledger):
                setup = _with_workers(setup, ledger)
    except (LedgerUnavailable, LedgerRefused) as exc:
        is_away = isinstance(exc, LedgerUnavailable)
        found.append(_unseen("The ledger's Redis, with all workers,", str(exc)))
    names = [one.name for one in setup.tasks if one.has_row]
    more: dict[str, Callable[[Reliable], list[Finding]]] = {
        "The rights at the broker's Redis": ask_broker,
        "The rights at the result backend's Redis": ask_results,
        "Rows with tasks": lambda own: [
            finding
            for one in own.framework.unseen_rows()
            for finding in look(ROWS, replace(one, tasks=names))
        ],
    }
    for what, ask in more.items():
        try:
            found += ask(reliable)
        except Exception as exc:
            # A backend whose packages are not installed, say.
            found.append(_unseen(what, f"{one_line(exc)}."))
    return found, setup, is_away


def _with_workers(setup: Setup, ledger: Ledger) -> Setup:
    now_ms, ahead_ms = ledger.workers.time_ms(), ledger.workers.ahead_ms()
    alive = [
        stored_setup(one, ahead_ms)
        for one in ledger.worker_looks()
        if not one.lease.is_dead and one.lease.until_ms > now_ms
    ]
    ahead = time.time() - (ledger.workers.time_ms() - ahead_ms) / 1000
    here = replace(setup.here, clock_ahead_seconds=ahead)
    return replace(setup, here=here, workers=alive or setup.workers)


def _has_error(found: Sequence[Finding]) -> bool:
    return any(one.severity == "error" for one in found)


def ask_ledger(reliable: Reliable, ledger: Ledger) -> list[Finding]:
    """Return what is wrong with the ledger's server.

    After an error nothing more is looked at.  Raises LedgerUnavailable and LedgerRefused.
    """
    facts = ServerFacts.from_info(ledger.server_facts(), has_sentinel=ledger.connector.has_sentinel)
    found = [*look(SERVER, facts), *look(DURABILITY, facts)]
    if _has_error(found):
        return found
    lacks = ledger.ask("rights", lambda c: denied(c, ledger_commands(ledger.keys.none)))
    what = f"The ledger's Redis at {ledger.connector.shown}"
    found += rights(what, lacks or (), _rule(reliable, ledger.connector.key_prefix))
    if _has_error(found):
        return found
    # This reads the format of the namespace first, so the right to read it was checked before.
    entry = NAMESPACE_TOO_NEW
    with closing(reliable.own_ledger(patience_seconds=3.0, is_for_operators=True)) as careful:
        try:
            leases = careful.workers.leases()
            entry = REDIS_UNFIT
            self_test(careful)
        except LedgerRefused as exc:
            return [*found, entry.found(problem=str(exc))]
    others = [one.project for one in leases if not one.is_dead]
    return [*found, *neighbours(reliable.project, others, reliable.config.namespace)]


def ask_broker(reliable: Reliable) -> list[Finding]:
    """Return what a worker may not do at a Redis that is its broker."""
    if not reliable.is_redis_broker:
        return []
    conf = reliable.app.conf
    options = conf.broker_transport_options or {}
    there = connect(reliable.broker_url, transport_options=options, ssl=conf.broker_use_ssl)
    with closing(there.client()) as client:
        commands = _of_broker(reliable.app, options, reliable.config.namespace)
        return _rights(reliable, f"The broker's Redis at {there.shown}", client, commands)


def ask_results(reliable: Reliable) -> list[Finding]:
    """Return what a worker may not do at a Redis that is its result backend."""
    backend: Any = reliable.app.backend
    if not is_celerys_redis(backend):
        return []
    commands = on_key(bytes_to_str(backend.get_key_for_task(_SOME)), *_RESULT)
    return _rights(reliable, "The result backend's Redis", backend.client, commands)


def _rights(
    reliable: Reliable, what: str, client: Any, commands: Iterable[Command]
) -> list[Finding]:
    if (lacks := denied(client, commands)) is None:
        return [_unseen(what, "it does not answer.")]
    return rights(what, lacks, _rule(reliable))


def _rule(reliable: Reliable, key_prefix: str = "") -> tuple[str, ...]:
    return acl_rule(key_prefix + reliable.config.namespace, queues=reliable.app.amqp.queues)


def _of_broker(app: Celery, options: Any, namespace: str) -> Iterator[Command]:
    prefix = options.get("global_keyprefix", "")
    for name, queue in app.amqp.queues.items():
        yield from on_key(prefix + name, *_QUEUE)
        if queue.exchange is not None and queue.exchange.name:
            yield from on_key(f"{prefix}_kombu.binding.{queue.exchange.name}", "SADD", "SMEMBERS")
    yield from on_key(f"{prefix}{UNACKED_PREFIX}{_SOME}", *_UNACKED)
    yield from on_key(f"{prefix}{UNACKED_LIST_PREFIX}{namespace}", *_SET)
    # Of workers without the package; it is only looked at.
    yield from on_key(prefix + options.get("unacked_key", "unacked"), "HSCAN")


def _unseen(what: str, why: str) -> Finding:
    return NOT_LOOKED_AT.found(what=what, why=why)


def ask_hooks(reliable: Reliable, pool: str) -> list[Finding]:
    """Return the names that hooks of a worker with this kind of pool rely on, and that are not
    installed.
    """
    needed = {
        Part.PRODUCER: True,
        Part.WORKER: True,
        Part.PREFORK: pool == "prefork",
        Part.GEVENT: pool == "gevent",
        Part.REDIS_BROKER: reliable.is_redis_broker,
        Part.REDIS_RESULTS: isinstance(reliable.app.backend, RedisBackend),
    }
    # Settings by which the ledger cannot be reached are reported when it is looked at.
    with suppress(ConfigurationError):
        # What its tasks publish.
        needed[Part.REDIS_PRODUCER] = bool(reliable.queues_at)
    return list(missing([part for part, is_needed in needed.items() if is_needed]))


def _results(reliable: Reliable) -> dict[str, Any]:
    """Return when results are deleted (0: never), and whether they are on the ledger's server: as
    far as that can be told.
    """
    found: dict[str, Any] = {}
    # The settings may be wrong, or a package missing: reported where the servers are asked.
    with suppress(Exception):
        backend: Any = reliable.app.backend
        if not isinstance(backend, DisabledBackend):
            found["results_expire_seconds"] = float(getattr(backend, "expires", None) or 0)
        there = results_server_of(backend)
        found["fills_ledger"] = there is not None and there == reliable.connector().server
    return found
