"""What operators do: dead letters, queues, revocations, the command line."""

from __future__ import annotations

from celery_reliable.clock import span
from celery_reliable.findings import Limits, check
from celery_reliable.operations.audit import AuditEntry, somebody
from celery_reliable.operations.brokers import broker_errors
from celery_reliable.operations.bulk import DEFAULT_RATE, Bulk, Chosen, Done, Unclear
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.editing import editable_arguments, publish_edited
from celery_reliable.operations.filters import BadFilter, Filter, Subject
from celery_reliable.operations.groups import GroupsOfLetters, LetterPages, UnknownGroup
from celery_reliable.operations.happenings import KINDS, Happened, Happening, Happenings
from celery_reliable.operations.metrics import FleetCollector, registry_of
from celery_reliable.operations.metrics import install as install_metrics
from celery_reliable.operations.moves import CannotMove, Moved
from celery_reliable.operations.objects import ObjectView
from celery_reliable.operations.pages import BadCursor, Page, gathered
from celery_reliable.operations.queues import purge
from celery_reliable.operations.revocations import IfRunning, Revoked
from celery_reliable.operations.runs import RunView
from celery_reliable.operations.status import Status
from celery_reliable.operations.stop_button import BadOrder, OrderView, UnknownOrder
from celery_reliable.operations.tables import printable
from celery_reliable.operations.tasks import TaskView
from celery_reliable.operations.throughput import RATES, Throughput
from celery_reliable.operations.times import iso, parse_age, parse_time
from celery_reliable.operations.uninstall import release
from celery_reliable.operations.views import full_view, group_view, short_view
from celery_reliable.operations.waits import Wait, Why
from celery_reliable.operations.walks import Kind
from celery_reliable.operations.workers import WorkerView
from celery_reliable.orders import OrderKind

__all__ = [
    "DEFAULT_RATE",
    "KINDS",
    "RATES",
    "AuditEntry",
    "BadCursor",
    "BadFilter",
    "BadOrder",
    "Bulk",
    "CannotMove",
    "CannotReplay",
    "Chosen",
    "DeadLetters",
    "Desk",
    "Done",
    "Filter",
    "FleetCollector",
    "GroupsOfLetters",
    "Happened",
    "Happening",
    "Happenings",
    "IfRunning",
    "Kind",
    "LetterPages",
    "Limits",
    "Moved",
    "ObjectView",
    "OrderKind",
    "OrderView",
    "Page",
    "Revoked",
    "RunView",
    "Status",
    "Subject",
    "TaskView",
    "Throughput",
    "Unclear",
    "UnknownGroup",
    "UnknownOrder",
    "Wait",
    "Why",
    "WorkerView",
    "broker_errors",
    "check",
    "editable_arguments",
    "full_view",
    "gathered",
    "group_view",
    "install_metrics",
    "iso",
    "parse_age",
    "parse_time",
    "printable",
    "publish_edited",
    "purge",
    "registry_of",
    "release",
    "short_view",
    "somebody",
    "span",
]
