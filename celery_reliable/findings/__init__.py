"""Everything that can be wrong with a set-up or with a running system, in one table.

An entry is one finding: its code, its name, its level, the sentence, the remedy, what happens to
who ignores it, and the predicate that looks for it in facts.  Worker start, ``manage.py check``,
``doctor``, ``status --check`` and the metrics only collect facts, and choose the part of the table
that is about them.  ``docs/reference/findings.rst`` is made of the table.
"""

from __future__ import annotations

from typing import Any, Final

from celery_reliable.findings.entries import (
    SUPPORTED,
    Entry,
    Finding,
    Limits,
    Running,
    ServerFacts,
    Setup,
    TaskSetup,
    WorkerSetup,
    counted,
    listed,
    log_finding,
    look,
    raise_for,
    worst_first,
)
from celery_reliable.findings.running import RUNNING, check
from celery_reliable.findings.servers import (
    DURABILITY,
    FLEET,
    NAMESPACE_SHARED,
    NAMESPACE_TOO_NEW,
    NOT_LOOKED_AT,
    REDIS_FORBIDS,
    REDIS_UNFIT,
    SERVER,
    neighbours,
)
from celery_reliable.findings.setups import (
    API_SETTINGS_WRONG,
    NAME_MISSING,
    NO_REDIS,
    ROWS_UNSCHEDULED,
    SETTINGS_WRONG,
    SETUP,
    START,
    UNPROTECTED,
)

__all__ = [
    "API_SETTINGS_WRONG",
    "DURABILITY",
    "FLEET",
    "NAMESPACE_TOO_NEW",
    "NAME_MISSING",
    "NOT_LOOKED_AT",
    "NO_REDIS",
    "REDIS_FORBIDS",
    "REDIS_UNFIT",
    "ROWS_UNSCHEDULED",
    "RUNNING",
    "SERVER",
    "SETTINGS_WRONG",
    "SETUP",
    "START",
    "SUPPORTED",
    "TABLE",
    "UNPROTECTED",
    "Entry",
    "Finding",
    "Limits",
    "Running",
    "ServerFacts",
    "Setup",
    "TaskSetup",
    "WorkerSetup",
    "check",
    "counted",
    "listed",
    "log_finding",
    "look",
    "neighbours",
    "raise_for",
    "worst_first",
]

#: All of them, by code.
TABLE: Final[tuple[Entry[Any], ...]] = tuple(
    sorted(
        (
            API_SETTINGS_WRONG,
            NAME_MISSING,
            NAMESPACE_SHARED,
            NAMESPACE_TOO_NEW,
            NO_REDIS,
            REDIS_FORBIDS,
            REDIS_UNFIT,
            SETTINGS_WRONG,
            *DURABILITY,
            *FLEET,
            *RUNNING,
            *SERVER,
            *SETUP,
            *START,
        ),
        key=lambda one: one.code,
    )
)
