"""Why a task waits, or what becomes of it just now: one plain sentence, and the same as data.

Pure: it is told what was seen.
"""

from __future__ import annotations

from celery_reliable.operations.waits.parked import waits_for_worker
from celery_reliable.operations.waits.seen import Seen
from celery_reliable.operations.waits.states import absent, ended, why

__all__ = ["Seen", "absent", "ended", "waits_for_worker", "why"]
