"""Attempts that the ledger has forgotten, because its server lost records while they ran.

Such an attempt was taken by nobody, and nobody else would run it: its message is its worker's.
"""

from __future__ import annotations

import os

from celery_reliable.ledger import FOREVER, Ledger, answers
from celery_reliable.model import ClaimRequest, TaskRef
from celery_reliable.process import RunningAttempt, current_worker

__all__ = ["is_forgotten"]


def is_forgotten(ledger: Ledger, attempt: RunningAttempt) -> bool:
    """Whether an attempt has no record since the server lost it, and not because the task ended.

    That is what a claim without the message answers.  It cannot be told of a message that carries
    no generation: then False.  Waits for the ledger as long as it takes.
    """
    worker, claim, stamp = current_worker(), attempt.claim, attempt.stamp
    if worker is None or not stamp.generation:
        return False
    # The server may have forgotten the worker too.
    for name in worker.turns_to_claim():
        if ledger.find(claim.task_id, patience_seconds=FOREVER) is not None:
            return False
        request = ClaimRequest(
            TaskRef(claim.task_id, ""),
            epoch=stamp.epoch,
            generation=stamp.generation,
            worker=name,
            token=claim.token,
            pid=os.getpid(),
        )
        answer = ledger.claim(request, patience_seconds=FOREVER)
        if not isinstance(answer, answers.NoLease):
            return isinstance(answer, answers.Unrecorded)
    return False
