"""The ledger decides: every atomic decision of the package, as a script on its Redis."""

from __future__ import annotations

from celery_reliable.ledger import answers
from celery_reliable.ledger.attempts import LONGEST, NextStep, NextSteps, NextTask
from celery_reliable.ledger.caller import FOREVER, FORMAT
from celery_reliable.ledger.connector import Connector, behind_sentinels, connect, server_of
from celery_reliable.ledger.groups import Death, death_of
from celery_reliable.ledger.happenings import NotedRow
from celery_reliable.ledger.indexes import Held, ObjectLook, Place, WorkerLook
from celery_reliable.ledger.keys import line_of, slots
from celery_reliable.ledger.moments import Bell
from celery_reliable.ledger.named import LivingWorker, LivingWorkers, Run, Runs
from celery_reliable.ledger.publications import AS_IT_IS, Resent, dues_of
from celery_reliable.ledger.records import Found, Look
from celery_reliable.ledger.startup_test import Command, denied, ledger_commands, on_key, self_test
from celery_reliable.ledger.store import Ledger
from celery_reliable.ledger.transitions import Step
from celery_reliable.ledger.workers import taken_from, to_stop

__all__ = [
    "AS_IT_IS",
    "FOREVER",
    "FORMAT",
    "LONGEST",
    "Bell",
    "Command",
    "Connector",
    "Death",
    "Found",
    "Held",
    "Ledger",
    "LivingWorker",
    "LivingWorkers",
    "Look",
    "NextStep",
    "NextSteps",
    "NextTask",
    "NotedRow",
    "ObjectLook",
    "Place",
    "Resent",
    "Run",
    "Runs",
    "Step",
    "WorkerLook",
    "answers",
    "behind_sentinels",
    "connect",
    "death_of",
    "denied",
    "dues_of",
    "ledger_commands",
    "line_of",
    "on_key",
    "self_test",
    "server_of",
    "slots",
    "taken_from",
    "to_stop",
]
