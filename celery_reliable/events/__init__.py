"""Every event of the package, declared once: a line in the log, and for some a signal, an event of
Celery's, and a note in the ledger.  ``docs/events.rst`` lists them.
"""

from __future__ import annotations

# All events in one namespace, for callers. These modules declare events and nothing else.
from celery_reliable.events.attempts import *  # noqa: F403
from celery_reliable.events.celery_events import Sender, set_sender, through
from celery_reliable.events.declaring import DECLARED, Event, as_shown, logger
from celery_reliable.events.messages import *  # noqa: F403
from celery_reliable.events.noting import set_keeper
from celery_reliable.events.rows import *  # noqa: F403
from celery_reliable.events.workers import *  # noqa: F403

__all__ = [
    "DECLARED",
    "Event",
    "Sender",
    "as_shown",
    "logger",
    "set_keeper",
    "set_sender",
    "through",
]
