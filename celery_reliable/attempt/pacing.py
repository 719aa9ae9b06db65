"""The moment of a limited task: asked for before its claim."""

from __future__ import annotations

from celery_reliable.attempt.delivery import Delivery
from celery_reliable.attempt.replacement import adopt
from celery_reliable.exceptions import ObjectIdError
from celery_reliable.ledger import Step, answers
from celery_reliable.options import is_limited, rate_of

__all__ = ["adopted_to_wait", "moment_of"]


def moment_of(delivery: Delivery) -> Step[answers.ReserveAnswer] | None:
    """Return what asks for the moment of a delivery's task, in one step with its claim; None if it
    may begin as soon as it comes.
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
    return delivery.reliable.ledger.paces.reserve_step(
        delivery.id, delivery.task.name, rate, epoch=delivery.stamp.epoch
    )


def adopted_to_wait(delivery: Delivery) -> answers.ParkedUntil:
    """Record a limited task that nobody has recorded, as only a record can wait for its moment: a
    pass sends it, with a stamp, and then it asks.  Waits for the ledger as long as it takes.
    """
    adopt(delivery.reliable.ledger, delivery.ref, delivery.message(), "", is_used=True)
    return answers.ParkedUntil(0)
