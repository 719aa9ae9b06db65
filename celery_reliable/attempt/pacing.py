"""The moment of a limited task: asked for before its claim."""

from __future__ import annotations

from celery_reliable.attempt.delivery import Delivery
from celery_reliable.attempt.replacement import adopt
from celery_reliable.exceptions import ObjectIdError
from celery_reliable.ledger import answers
from celery_reliable.options import is_limited, rate_of

__all__ = ["adopted_to_wait", "too_early"]


def too_early(delivery: Delivery, patience_seconds: float) -> answers.ParkedUntil | None:
    """Ask for the moment of a delivery's task; return until when it is parked, or None if it may
    begin, as far as its rate is concerned.

    Raises LedgerUnavailable when the ledger does not answer in time, and LedgerRefused.
    """
    if not delivery.stamp.epoch or not is_limited(delivery.task):
        return None
    try:
        rate = rate_of(delivery.task, delivery.args, delivery.kwargs)
    except ObjectIdError:
        # The attempt fails by it, as soon as it takes its object.
        return None
    if rate is None:
        return None
    answer = delivery.reliable.ledger.paces.reserve(
        delivery.id,
        delivery.task.name,
        rate,
        epoch=delivery.stamp.epoch,
        patience_seconds=patience_seconds,
    )
    return answer if isinstance(answer, answers.ParkedUntil) else None


def adopted_to_wait(delivery: Delivery) -> answers.ParkedUntil:
    """Record a limited task that nobody has recorded, as only a record can wait for its moment: a
    pass sends it, with a stamp, and then it asks.  Waits for the ledger as long as it takes.
    """
    adopt(delivery.reliable.ledger, delivery.ref, delivery.message(), "", is_used=True)
    return answers.ParkedUntil(0)
