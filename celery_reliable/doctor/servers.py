"""What is asked of the servers of ledger, broker and results, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from celery import Celery
from celery.backends.base import DisabledBackend
from kombu.utils.encoding import bytes_to_str

from celery_reliable.app import Reliable
from celery_reliable.broker import UNACKED_LIST_PREFIX, UNACKED_PREFIX
from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger import (
    Command,
    Ledger,
    connect,
    denied,
    ledger_commands,
    on_key,
    self_test,
)
from celery_reliable.model import Finding
from celery_reliable.results import is_celerys_redis, results_server_of
from celery_reliable.settings import (
    ServerFacts,
    acl_rule,
    check_durability,
    check_neighbours,
    check_rights,
    check_server,
)

__all__ = [
    "check_broker",
    "check_ledger",
    "check_results",
    "fills_ledger",
    "has_error",
    "not_looked_at",
    "results_expire_seconds",
    "unseen",
]

#: What kombu, unacked hashes and the sweeper do with each kind of key.
_QUEUE = ("BRPOP", "LINDEX", "LLEN", "LPUSH", "RPOP", "RPUSH")
_UNACKED = ("HDEL", "HEXISTS", "HGET", "HKEYS", "HLEN", "HMGET", "HSET", "HSTRLEN")
_SET = ("SADD", "SMEMBERS", "SREM")
_RESULT = ("GET", "PUBLISH", "SET", "SETEX")
#: The end of a key that stands for all unacked hashes, or all tasks.
_SOME = "rights"


def has_error(findings: Sequence[Finding]) -> bool:
    """Whether one of *findings* keeps a worker from starting."""
    return any(one.level == "error" for one in findings)


def not_looked_at(what: str, why: str) -> Finding:
    """Return the finding that something could not be looked at, and why."""
    return Finding(
        "celery_reliable.not_looked_at",
        "warning",
        f"{what[0].upper()}{what[1:]} could not be looked at: {why}",
        "Ask again from where it can be seen, with a user who may.",
    )


def check_ledger(reliable: Reliable, ledger: Ledger) -> tuple[list[Finding], ServerFacts]:
    """Return what is wrong with the ledger's server, and what is known of it.

    What follows an error is not looked at.  Raises LedgerUnavailable and LedgerRefused.
    """
    known = ServerFacts.from_info(ledger.server_facts(), has_sentinel=ledger.connector.has_sentinel)
    found = [*check_server(known), *check_durability(known)]
    if has_error(found):
        return found, known
    missing = ledger.ask("rights", lambda c: denied(c, ledger_commands(ledger.keys.none)))
    what = f"The ledger's Redis at {ledger.connector.shown}"
    found += check_rights(what, missing or (), _rule(reliable, ledger.connector.key_prefix))
    if has_error(found):
        return found, known
    # Who may not read must have been told so by now: this reads the format of the namespace first.
    careful = reliable.own_ledger(
        reply_timeout_seconds=5.0, patience_seconds=3.0, is_for_operators=True
    )
    try:
        try:
            leases = careful.workers.leases()
        except LedgerRefused as exc:
            hint = "Upgrade celery-reliable here, or give this app a NAMESPACE of its own."
            found.append(Finding("celery_reliable.namespace_too_new", "error", str(exc), hint))
            return found, known
        try:
            self_test(careful)
        except LedgerRefused as exc:
            hint = "Let REDIS_URL name a Redis or a Valkey itself, and not something before it."
            found.append(Finding("celery_reliable.redis_unfit", "error", str(exc), hint))
            return found, known
    finally:
        careful.close()
    others = {one.project for one in leases if not one.is_dead}
    return [*found, *check_neighbours(reliable.project, others, reliable.config.namespace)], known


def unseen(facts: ServerFacts) -> Iterator[Finding]:
    """Yield what a server does not tell, though something may be wrong with it."""
    hidden = {
        "version": facts.version is None,
        "role": facts.role is None,
        "maxmemory and maxmemory-policy (eviction)": facts.maxmemory_policy is None
        or facts.maxmemory is None,
        "appendonly": facts.appendonly is None,
        "appendfsync": bool(facts.appendonly) and facts.appendfsync is None,
        "save": facts.appendonly is False and facts.save is None,
        "min-replicas-to-write": facts.min_replicas is None
        and (facts.has_sentinel or facts.replicas != 0),
    }
    names = [name for name, is_hidden in hidden.items() if is_hidden]
    if names:
        yield not_looked_at(
            "the ledger's Redis", f"it does not tell its {', '.join(names)} (INFO, CONFIG GET)."
        )


def check_broker(reliable: Reliable) -> list[Finding] | None:
    """Return what a worker may not do at a Redis that is its broker; None if it does not answer."""
    app, conf = reliable.app, reliable.app.conf
    if not reliable.is_redis_broker:
        return []
    url, options = reliable.broker_url, conf.broker_transport_options or {}
    there = connect(url, transport_options=options, ssl=conf.broker_use_ssl)
    client = there.client()
    try:
        missing = denied(client, _of_broker(app, options, reliable.config.namespace))
    finally:
        client.close()
    if missing is None:
        return None
    return check_rights(f"The broker's Redis at {there.shown}", missing, _rule(reliable))


def check_results(reliable: Reliable) -> list[Finding] | None:
    """Return what a worker may not do at a Redis that is its result backend; None if that does not
    answer.
    """
    backend: Any = reliable.app.backend
    if not is_celerys_redis(backend):
        return []
    key = backend.get_key_for_task(_SOME)
    missing = denied(backend.client, on_key(bytes_to_str(key), *_RESULT))
    if missing is None:
        return None
    return check_rights("The result backend's Redis", missing, _rule(reliable))


def fills_ledger(reliable: Reliable) -> bool:
    """Whether results are on the ledger's server, as far as that can be told."""
    try:
        there = results_server_of(reliable.app.backend)
        return there is not None and there == reliable.connector().server
    except Exception:
        # The settings are wrong, or a package is missing: told where the servers are asked.
        return False


def results_expire_seconds(reliable: Reliable) -> float | None:
    """Return when results are deleted; 0: never; None: there are none, or nobody knows."""
    try:
        backend: Any = reliable.app.backend
    except Exception:
        # Likewise.
        return None
    if isinstance(backend, DisabledBackend):
        return None
    return float(getattr(backend, "expires", None) or 0)


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
