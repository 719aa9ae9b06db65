"""Work given to Celery is never lost, never run twice at once, and never runs in circles."""

from __future__ import annotations

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
from celery_reliable.operations import install_control_everywhere as _revoke_everywhere
from celery_reliable.publishing import install_everywhere as _install_everywhere
from celery_reliable.settings import ReliableConfig
from celery_reliable.task import ReliableTask
from celery_reliable.version import __version__

_install_everywhere()
_revoke_everywhere()

# Last: an app that is being finalized makes its tasks of the base above.
from celery_reliable.recovery import beat as _beat  # noqa: E402, F401 - registers celery_reliable.sweep

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
