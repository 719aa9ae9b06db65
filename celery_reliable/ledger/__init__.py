"""The ledger decides: every atomic decision of the package, as a script on its Redis."""

from __future__ import annotations

from celery_reliable.ledger import answers
from celery_reliable.ledger.caller import FOREVER
from celery_reliable.ledger.causes import Death, last_death
from celery_reliable.ledger.connector import Connector, behind_sentinels, connect, server_of
from celery_reliable.ledger.due_records import AS_IT_IS, Resent
from celery_reliable.ledger.formats import FORMAT
from celery_reliable.ledger.groups import death_of, group_of
from celery_reliable.ledger.happenings import NotedRow
from celery_reliable.ledger.indexes import Place, WorkerLook
from celery_reliable.ledger.living import LivingWorker, LivingWorkers
from celery_reliable.ledger.lock_release import line_of
from celery_reliable.ledger.locks import ObjectLocks
from celery_reliable.ledger.next_attempts import LONGEST, NextStep, NextSteps, NextTask
from celery_reliable.ledger.object_looks import Held, ObjectLook
from celery_reliable.ledger.place_steps import slots
from celery_reliable.ledger.records import Found, Look
from celery_reliable.ledger.rights import Command, denied, ledger_commands, on_key
from celery_reliable.ledger.runs import Run, Runs
from celery_reliable.ledger.startup_test import self_test
from celery_reliable.ledger.store import Ledger
from celery_reliable.ledger.transitions import Step

__all__ = [
    "AS_IT_IS",
    "FOREVER",
    "FORMAT",
    "LONGEST",
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
    "ObjectLocks",
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
    "group_of",
    "last_death",
    "ledger_commands",
    "line_of",
    "on_key",
    "self_test",
    "server_of",
    "slots",
]
