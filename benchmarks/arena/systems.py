"""Who is in the arena: how its workers are started, and what is said of its settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata

__all__ = ["OURS", "STOCK", "SYSTEMS", "System"]

OURS, STOCK = "celery-reliable", "celery-late"

_APPS = "benchmarks.arena.apps"
_PYTHON = (sys.executable, "-m")


@dataclass(frozen=True)
class System:
    """One system in one configuration."""

    name: str
    #: The module of its task, which publishes when it is run.
    module: str
    #: The distributions that it comes from; the first gives its version.
    packages: tuple[str, ...]
    worker: tuple[str, ...]
    #: What is changed of the defaults, and to what.
    settings: str
    #: After how long it delivers again what nobody acknowledged, as it is set here.
    redelivery_seconds: float | None
    #: A process that no fault hits: a scheduler, a keeper.
    companion: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    server: str = "redis"

    def version(self) -> str | None:
        """The version of its first package; None when one of them is not installed."""
        try:
            versions = [metadata.version(name) for name in self.packages]
        except metadata.PackageNotFoundError:
            return None
        return versions[0]


_CELERY = (
    *(*_PYTHON, "celery", "-A", f"{_APPS}.with_celery", "worker"),
    *("-c", "2", "--loglevel", "WARNING"),
)
#: A worker that is told to end gives back what is not done.
_SOFT = {"REMAP_SIGTERM": "SIGQUIT"}

_ALL = (
    System(
        OURS,
        f"{_APPS}.with_celery",
        ("celery-reliable", "celery"),
        _CELERY,
        "base=ReliableTask, all of its settings at their defaults; visibility_timeout 10 s, which "
        "changes nothing for it; worker_soft_shutdown_timeout 2 s (default: none) with "
        "REMAP_SIGTERM=SIGQUIT",
        10,
        environ=_SOFT,
    ),
    System(
        "celery",
        f"{_APPS}.with_celery",
        ("celery",),
        _CELERY,
        "defaults: a task is acknowledged before it runs",
        None,
    ),
    System(
        STOCK,
        f"{_APPS}.with_celery",
        ("celery",),
        _CELERY,
        "task_acks_late, task_reject_on_worker_lost; visibility_timeout 10 s (default 3600 s), "
        "looked at each second (default: each 100 s); worker_soft_shutdown_timeout 2 s (default: "
        "none) with REMAP_SIGTERM=SIGQUIT",
        10,
        environ=_SOFT,
    ),
    System(
        "dramatiq",
        f"{_APPS}.with_dramatiq",
        ("dramatiq",),
        (*_PYTHON, "dramatiq", f"{_APPS}.with_dramatiq", "-p", "1", "-t", "2"),
        "Redis broker; heartbeat_timeout 10 s (default 60 s), maintenance_chance 100 % (default "
        "0.1 %)",
        10,
    ),
    System(
        "taskiq",
        f"{_APPS}.with_taskiq",
        ("taskiq", "taskiq-redis"),
        # A worker that takes two, and one ahead.
        (
            *_PYTHON,
            "taskiq",
            "worker",
            f"{_APPS}.with_taskiq:broker",
            *("--workers", "1", "--max-async-tasks", "2", "--max-prefetch", "1"),
            *("--ack-type", "when_executed"),
        ),
        "RedisStreamBroker; idle_timeout 10 s (default 600 s), unacknowledged_lock_timeout 5 s "
        "(default: none), acknowledged when executed",
        10,
        companion=(
            *(*_PYTHON, "taskiq", "scheduler", f"{_APPS}.with_taskiq:scheduler"),
            *("--update-interval", "1"),
        ),
    ),
    System(
        "saq",
        f"{_APPS}.with_saq",
        ("saq",),
        (*_PYTHON, "saq", f"{_APPS}.with_saq.settings"),
        "heartbeat 10 s with job.update() in the task (default: none), timeout 0 (default 10 s), "
        "retries 5 (default 1), sweep each 12 s (default 60 s)",
        10,
    ),
    System(
        "docket",
        f"{_APPS}.with_docket",
        ("pydocket",),
        (*_PYTHON, f"{_APPS}.with_docket", "worker"),
        "redelivery_timeout 10 s (default 300 s), minimum_check_interval 10 ms (default 250 ms)",
        10,
    ),
    System(
        "procrastinate",
        f"{_APPS}.with_procrastinate",
        ("procrastinate", "psycopg"),
        (*_PYTHON, f"{_APPS}.with_procrastinate", "default"),
        "PostgreSQL; the guide's retry_stalled_jobs each 2 s (10 min) for 10 s (30 s) without a "
        "heartbeat, which comes each 3 s (10 s), in a worker of its own; stalled_worker_timeout "
        "600 s (30 s)",
        10,
        companion=(*_PYTHON, f"{_APPS}.with_procrastinate", "maintenance"),
        server="postgres",
    ),
)

#: By name, in the order in which they stand in the table.
SYSTEMS: Mapping[str, System] = {one.name: one for one in _ALL}
