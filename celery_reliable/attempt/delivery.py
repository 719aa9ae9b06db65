"""What the main process tells the process that runs a task, in properties of its message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_reliable import clock
from celery_reliable.context import WorkerProcess
from celery_reliable.model import Claim

__all__ = ["DELIVERY", "EARLY", "MESSAGE", "claimed_early"]

#: Beside DELIVERY and EARLY.
MESSAGE = "reliable_message"

#: Where the main process puts what the child needs to know: properties are not copied to retries,
#: headers are.
DELIVERY = "reliable_delivery"
EARLY = "reliable_claim"

#: For so long a claim is taken for current without a look, while nothing speaks against the lease:
#: a worker that was away for longer may have been declared dead.
_FRESH_SECONDS = 0.5


def claimed_early(
    worker: WorkerProcess, task_id: str, properties: Mapping[str, Any]
) -> Claim | None:
    """Return the claim that was made as the message was filed; None when there is none, or when
    somebody may have taken it since.
    """
    told = properties.get(EARLY)
    if not told:
        return None
    attempt, losses, name, asked_at = told
    if clock.now() - asked_at > _FRESH_SECONDS or not worker.surely_holds(name):
        return None
    return Claim(task_id, attempt, name, str(properties[DELIVERY]), losses)
