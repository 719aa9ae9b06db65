"""What operators do: dead letters, queues, revocations, the command line."""

from __future__ import annotations

from celery_reliable.operations.control import install_control, install_control_everywhere
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters
from celery_reliable.operations.queues import purge
from celery_reliable.operations.uninstall import release
from celery_reliable.operations.views import full_view, short_view

__all__ = [
    "CannotReplay",
    "DeadLetters",
    "full_view",
    "install_control",
    "install_control_everywhere",
    "purge",
    "release",
    "short_view",
]
