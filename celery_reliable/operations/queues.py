"""Emptying queues on purpose, so that nothing of what was in them is sent again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import Stamp

__all__ = ["Purged", "purge"]


@dataclass
class Purged:
    """What was removed.  Counts."""

    messages: int = 0
    #: Tasks of ours that were cancelled with their messages.
    records: int = 0


def purge(app: Celery, queues: Iterable[str]) -> Purged:
    """Remove every message of *queues*, and cancel the tasks that were queued by them.

    Results are not stored, as by Celery's own purge.  A message is removed after its task was
    cancelled, so this may be killed and repeated at any point.  Raises ReliableError, and kombu's
    errors when the broker cannot be reached.
    """
    reliable = reliable_of(app)
    done = Purged()
    ledger = reliable.own_ledger(
        reply_timeout_seconds=5.0, patience_seconds=5.0, is_for_operators=True
    )
    try:
        with app.connection_for_read() as connection, connection.channel() as channel:
            for queue in queues:
                while (message := channel.basic_get(queue)) is not None:
                    headers = message.headers if isinstance(message.headers, dict) else {}
                    epoch = Stamp.of(headers).epoch
                    if epoch:
                        answer = ledger.cancel(
                            str(headers.get("id")), epoch=epoch, by="its queue was purged"
                        )
                        done.records += isinstance(answer, answers.Cancelled)
                    channel.basic_ack(message.delivery_tag)
                    done.messages += 1
    finally:
        ledger.close()
    logger.warning("queues_purged messages=%s records=%s", done.messages, done.records)
    return done
