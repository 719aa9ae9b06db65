"""What happens to tasks and workers, and has a signal, an event of Celery's or a note.
``docs/events.rst`` lists it.  All else is a line of `celery_reliable.log` where it happens.
"""

from __future__ import annotations

from celery_reliable.events.declarations import *  # noqa: F403

# All events in one namespace, for callers. The module declares events and nothing else.
from celery_reliable.events.event import DECLARED, Event, set_sender, through

__all__ = ["DECLARED", "Event", "set_sender", "through"]
