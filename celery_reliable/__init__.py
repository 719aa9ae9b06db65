"""Work given to Celery is never lost, never run twice at once, and never runs in circles."""

from __future__ import annotations

from celery_reliable.compat.app import make_part_by as _make_part_by
from celery_reliable.exceptions import (
    ConfigurationError,
    ConfigurationWarning,
    LedgerRefused,
    LedgerUnavailable,
    NotPublished,
    ObjectBusy,
    ObjectIdError,
    PublishUnknown,
    ReliableError,
    TaskExists,
    UnknownDeadLetter,
)
from celery_reliable.settings import ReliableConfig
from celery_reliable.task import CONTROL as _CONTROL
from celery_reliable.task import ReliableTask
from celery_reliable.version import __version__

# An app that has made none of these yet makes it by this path: it records what it publishes, and
# tells the ledger what it revokes.
_make_part_by("amqp", "celery.app.amqp:AMQP", "celery_reliable.publishing.amqp:amqp_of")
_make_part_by("control", "celery.app.control:Control", _CONTROL)

# Last: an app that is being finalized makes its tasks of the base above.
from celery_reliable import beat as _beat  # noqa: E402, F401 - registers celery_reliable.sweep

__all__ = [
    "ConfigurationError",
    "ConfigurationWarning",
    "LedgerRefused",
    "LedgerUnavailable",
    "NotPublished",
    "ObjectBusy",
    "ObjectIdError",
    "PublishUnknown",
    "ReliableConfig",
    "ReliableError",
    "ReliableTask",
    "TaskExists",
    "UnknownDeadLetter",
    "__version__",
]
