"""Publications that were recorded and are not sent: another task has the object, or the sending has
failed.  A record that cannot be withdrawn stays, and the sweeper sends it.
"""

from __future__ import annotations

from celery_reliable.context import running
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.model import Claim
from celery_reliable.publishing.errors import not_sent, unknown
from celery_reliable.publishing.publication import Publication

__all__ = ["is_anothers", "is_left", "is_send_given_up"]

#: A caller outside of workers waits only so long for the withdrawal before it hears of the failure.
_PATIENCE_SECONDS = 2.0


def is_anothers(publication: Publication) -> bool:
    """Take the object of a unique task; True when nothing is to be sent, as another has it.

    Raises what `Publication.record` raises.
    """
    call, object_key = publication.unique, publication.object_key
    if call is None or object_key is None:
        return False
    try:
        holder = publication.reliable.locks.take(
            object_key,
            # What holds the object before any attempt was made.
            Claim(publication.ref.id, 0, "", publication.epoch),
            patience_seconds=FOREVER if running.get() is not None else None,
        )
    except (LedgerUnavailable, LedgerRefused) as exc:
        if not _is_withdrawn(publication, exc):
            return True
        if isinstance(exc, LedgerRefused):
            raise
        raise not_sent(publication.ref, exc) from exc
    if holder is None:
        return False
    if _is_withdrawn(publication, f"{holder} has its object"):
        call.holder = holder
    return True


def is_send_given_up(publication: Publication, exc: Exception) -> bool:
    """Decide what a send that raised means; True when the caller has to see the error.

    Raises PublishUnknown.
    """
    if publication.reliable.config.outbox:
        ref = publication.ref
        logger.warning("send_left_to_sweeper name=%s id=%s error=%s", ref.name, ref.id, exc)
        return False
    return _is_withdrawn(publication, exc)


def _is_withdrawn(publication: Publication, why: object) -> bool:
    """Take the publication back; False when somebody runs it already, or another call was answered
    with it: then the sweeper sends it.
    """
    name, task_id = publication.ref.name, publication.ref.id
    try:
        answer = publication.reliable.ledger.withdraw(
            task_id, publication.epoch, patience_seconds=_PATIENCE_SECONDS
        )
    except LedgerUnavailable as unavailable:
        attempt = running.get()
        if attempt is not None:
            attempt.in_doubt = {**(attempt.in_doubt or {}), task_id: unavailable.is_undone}
        raise unknown(
            f"Task {name}[{task_id}] could not be sent ({why}), and its record could not be "
            f"withdrawn ({unavailable}): it may run or not.",
            task_id=task_id,
        ) from (why if isinstance(why, Exception) else unavailable)
    # Otherwise the message has arrived and is claimed, or another call relies on it.
    return isinstance(answer, answers.Withdrawn)


def is_left(publication: Publication) -> bool:
    """Whether the attempt that runs has published this id before, and that is to stay.

    Celery, and who tells a chord, publish a callback or a body again after an error.  If the record
    of the first time is there, the sweeper sends it; if it is gone, and was not withdrawn, its task
    has ended.  To record it anew would have it run again.  Waits for the ledger as long as it
    takes; raises LedgerRefused.
    """
    attempt, ref = running.get(), publication.ref
    if attempt is None or not attempt.in_doubt or ref.id not in attempt.in_doubt:
        return False
    record = publication.reliable.ledger.find(ref.id, patience_seconds=FOREVER)
    # Not before it has answered: whoever is refused may try again.
    was_not_withdrawn = attempt.in_doubt.pop(ref.id)
    return was_not_withdrawn or record is not None
