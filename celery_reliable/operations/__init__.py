"""What operators do: dead letters, queues, revocations, the command line."""

from __future__ import annotations

from celery_reliable.clock import parse_age, span, utc
from celery_reliable.findings import Limits, check, counted
from celery_reliable.operations.bulk import Bulk
from celery_reliable.operations.catalog import ACTS, QUERIES
from celery_reliable.operations.dead_letters import (
    CannotReplay,
    DeadLetters,
    LetterGroups,
    UnknownGroup,
)
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.history import KINDS, Happenings, somebody
from celery_reliable.operations.listing import Filter, Kind, Page, Subject
from celery_reliable.operations.messages import printable
from celery_reliable.operations.metrics import FleetCollector, registry_of
from celery_reliable.operations.operation import (
    BadParameter,
    Operation,
    Param,
    Parameter,
    Right,
)
from celery_reliable.operations.queues import BrokerUnavailable, broker_asked, purge
from celery_reliable.operations.stop_button import UnknownOrder
from celery_reliable.operations.tasks import UnknownRun
from celery_reliable.operations.uninstall import release
from celery_reliable.operations.views import (
    FATES,
    Audited,
    Done,
    Entry,
    Group,
    Groups,
    Happening,
    Holder,
    IfRunning,
    LastPass,
    NobodyAlive,
    Object,
    Order,
    Queue,
    Revoked,
    Run,
    RunMember,
    Running,
    Status,
    Task,
    TaskInFull,
    Wait,
    WaitsFor,
    Worker,
    WorkerDeath,
    as_json,
)
from celery_reliable.orders import OrderKind

__all__ = [
    "ACTS",
    "FATES",
    "KINDS",
    "QUERIES",
    "Audited",
    "BadParameter",
    "BrokerUnavailable",
    "Bulk",
    "CannotReplay",
    "DeadLetters",
    "Desk",
    "Done",
    "Entry",
    "Filter",
    "FleetCollector",
    "Group",
    "Groups",
    "Happening",
    "Happenings",
    "Holder",
    "IfRunning",
    "Kind",
    "LastPass",
    "LetterGroups",
    "Limits",
    "NobodyAlive",
    "Object",
    "Operation",
    "Order",
    "OrderKind",
    "Page",
    "Param",
    "Parameter",
    "Queue",
    "Revoked",
    "Right",
    "Run",
    "RunMember",
    "Running",
    "Status",
    "Subject",
    "Task",
    "TaskInFull",
    "UnknownGroup",
    "UnknownOrder",
    "UnknownRun",
    "Wait",
    "WaitsFor",
    "Worker",
    "WorkerDeath",
    "as_json",
    "broker_asked",
    "check",
    "counted",
    "parse_age",
    "printable",
    "purge",
    "registry_of",
    "release",
    "somebody",
    "span",
    "utc",
]
