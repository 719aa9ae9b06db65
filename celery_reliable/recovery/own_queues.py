"""Queues that one worker each consumes, and that nobody consumes any more: what waits in them for
workers by their names is taken out, and sent elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from celery import Celery
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

from celery_reliable.ledger import Ledger, answers
from celery_reliable.message import Envelope, Stamp
from celery_reliable.publishing import at_home, resend
from celery_reliable.recovery.broker_view import BrokerView, Waiting

__all__ = ["Emptied", "empty_own_queue"]


@dataclass(frozen=True)
class Emptied:
    """What became of the messages of a queue.  Counts."""

    looked_at: int
    taken: int


def empty_own_queue(
    app: Celery, ledger: Ledger, broker: BrokerView, queue: str, at_once: int
) -> Emptied:
    """Take out what names workers, of about *at_once* messages of a queue on a Redis.

    Each task is due then, to be sent again from its record.  One whose record the ledger has lost
    goes to the queue that it would have if it named nobody: whoever claims it records it anew.
    Raises what the ledger and the broker raise.
    """
    found = broker.messages_in(queue, at_once)
    named = [one for one in found if one.is_named]
    # First it is certain that each task is sent again.  Its message is a copy from then on.
    told = ledger.named.divert_all([(one.task_id, one.epoch) for one in named])
    taken: list[Waiting] = []
    lost: list[Waiting] = []
    for one, answer in zip(named, told, strict=True):
        (lost if isinstance(answer, answers.Absent) else taken).append(one)
    broker.remove(taken)
    n_sent = sum(_is_sent_home(app, ledger, broker, one) for one in lost)
    return Emptied(len(found), len(taken) + n_sent)


def _is_sent_home(app: Celery, ledger: Ledger, broker: BrokerView, message: Waiting) -> bool:
    """Take out a message that has no record, and send it unless its task has ended; False where it
    has to stay.

    It is not left to the claim to refuse it: a worker without the package would run it.  And each
    is taken out when it is sent: what fails for another does not send it once more.
    """
    try:
        envelope = Envelope.from_payload(loads(bytes_to_str(message.raw)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    stamp = Stamp.of(envelope.headers)
    if not (stamp.generation and ledger.has_ended(message.task_id, stamp.generation, stamp.epoch)):
        home = at_home(envelope)
        if home is None:
            return False
        resend(app, home)
    broker.remove([message])
    return True
