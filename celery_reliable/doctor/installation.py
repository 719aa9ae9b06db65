"""What is installed: releases, the names that hooks rely on, and packages that are asked for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from billiard import get_start_method
from celery.backends.redis import RedisBackend

from celery_reliable.app import Reliable
from celery_reliable.compat import Part, check
from celery_reliable.doctor.fleet import check_versions, supported
from celery_reliable.doctor.servers import not_looked_at
from celery_reliable.doctor.setups import PACKAGES
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.model import Finding

__all__ = ["check_extras", "check_hooks", "check_installed", "check_pool"]

_POOL_PARTS: Final = {"prefork": Part.PREFORK, "gevent": Part.GEVENT}


def _parts_of(reliable: Reliable, pool: str) -> Iterator[Part]:
    """Yield what of the package a worker with this kind of pool uses."""
    yield from (Part.PRODUCER, Part.WORKER)
    if pool in _POOL_PARTS:
        yield _POOL_PARTS[pool]
    if reliable.is_redis_broker:
        yield Part.REDIS_BROKER
    # Settings by which the ledger cannot be reached are told when it is looked at.
    with suppress(ConfigurationError):
        if reliable.queues_at:
            # What its tasks publish.
            yield Part.REDIS_PRODUCER
    if isinstance(reliable.app.backend, RedisBackend):
        yield Part.REDIS_RESULTS


def check_hooks(reliable: Reliable, pool: str) -> list[Finding]:
    """Return what is relied on, and not there, in what is installed."""
    return list(check(_parts_of(reliable, pool)))


def check_pool(pool: str, conf: Any) -> Iterator[Finding]:
    """Yield whether the kind of pool is not supported, or its children would not know which worker
    they belong to.
    """
    if pool == "eventlet":
        yield Finding(
            "celery_reliable.pool_not_supported",
            "error",
            "The pool eventlet is not supported: a task that computes would hold up the heartbeat "
            "of its worker.",
            "Use --pool gevent, or another pool.",
        )
    if pool != "prefork":
        return
    named = conf.get("worker_pool_start_method") or "fork"
    # With its default Celery leaves the choice to billiard, which spawns on macOS since 4.3.
    method = get_start_method() if named == "fork" else named
    if method == "fork":
        return
    remedy = "Set worker_pool_start_method to 'fork'"
    if named == "fork":
        remedy = (
            "Call billiard.set_start_method('fork', force=True) in the module of your app (on "
            "macOS workers also need OBJC_DISABLE_INITIALIZE_FORK_SAFETY=YES in their environment)"
        )
    yield Finding(
        "celery_reliable.pool_does_not_fork",
        "error",
        f"The processes of this prefork pool would be started by {method!r}: they learn from a "
        "fork which worker's lease they run under.",
        f"{remedy}, or use another pool, such as --pool threads.",
    )


def check_installed() -> Iterator[Finding]:
    """Yield which releases here are not those that the package asks for."""
    bounds = supported()
    if bounds is None:
        yield not_looked_at(
            "the range of releases", "celery-reliable is not installed as a package (pip install)."
        )
        return
    there = {}
    for package in PACKAGES:
        try:
            there[package] = version(package)
        except PackageNotFoundError:
            yield not_looked_at(f"the release of {package}", "it is not installed as a package.")
    yield from check_versions("Here", there, bounds)


def check_extras(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Yield which packages are missing that this process's surroundings ask for."""
    if environ.get("PROMETHEUS_MULTIPROC_DIR") and not _is_there("prometheus_client"):
        yield _missing(
            "warning",
            "PROMETHEUS_MULTIPROC_DIR is set, and prometheus_client, which counts there, is not "
            "installed.",
            "metrics",
        )
    if not _is_there("rich"):
        yield _missing(
            "info",
            "The package rich is not installed: the commands of `celery reliable` print no tables, "
            "and only --json.",
            "cli",
        )


def _missing(level: Any, message: str, extra: str) -> Finding:
    hint = f'pip install "celery-reliable[{extra}]"'
    return Finding("celery_reliable.extra_missing", level, message, hint)


def _is_there(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True
