"""Drills: workers of the user's app, on a queue of their own, are killed, to see what happens."""

from __future__ import annotations

from celery_reliable.operations.drills.drill import KINDS, Drill
from celery_reliable.operations.drills.judging import overlapping, unfinished
from celery_reliable.operations.drills.log import LOG_NAME, Log
from celery_reliable.operations.drills.processes import RELEASE_NAME, TOLD_VARIABLE
from celery_reliable.operations.drills.report import DrillReport
from celery_reliable.operations.drills.sessions import Session

__all__ = [
    "KINDS",
    "LOG_NAME",
    "RELEASE_NAME",
    "TOLD_VARIABLE",
    "Drill",
    "DrillReport",
    "Log",
    "Session",
    "overlapping",
    "unfinished",
]
