"""Queues: what waits in each, since when, and which workers consume it; and how one is emptied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from celery import Celery
from kombu.exceptions import OperationalError

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Look, answers
from celery_reliable.log import as_shown, logger
from celery_reliable.message import Stamp
from celery_reliable.model import State
from celery_reliable.operations.messages import envelope_of
from celery_reliable.operations.operation import Param, Part
from celery_reliable.operations.views import Queue, Worker
from celery_reliable.operations.waits import held_by
from celery_reliable.operations.workers import Workers
from celery_reliable.recovery import MOST_BYTES

__all__ = ["BrokerUnavailable", "Purged", "Queues", "broker_asked", "named_queues", "purge"]

#: Messages looked at of those that are popped next, of each priority.
_LOOKED_AT = 5
#: Records looked at for the queues that nobody here has declared, and for the states of all.
_SAMPLED = 500
#: Messages of them.
_MESSAGES = 100


class Queues(Part):
    """The queues of an app, looked at once.  Raises what the ledger raises, and kombu's errors."""

    def all(self, workers: Sequence[Worker] | None = None) -> list[Queue]:
        """List queues: how much waits, how long the oldest already, and who consumes them.

        Raises kombu's errors.  These are those that the app declares, that workers consume, or that
        recorded tasks wait for (of 500 that were looked at), by name.  *workers*: None: all.
        """
        if workers is None:
            workers = Workers(self.app, self.ledger, self.broker).all()
        alive = [one for one in workers if one.state == "alive"]
        _, looks = self._sample
        names = {*self.app.amqp.queues, *self._queues_of(looks)}
        names.update(queue for one in alive for queue in one.queues)
        now_ms = self.ledger.workers.time_ms()
        if self.broker.is_redis:
            views = [self._view(name, now_ms) for name in sorted(names)]
        else:
            views = [
                Queue(name=name, depth=depth, consumers=consumers)
                for name, declared in self.broker.declared_all(sorted(names)).items()
                for depth, consumers in [declared or (None, None)]
            ]
        orders = self.ledger.orders.read()
        return [
            replace(
                one,
                workers=tuple(each.nodename for each in alive if one.name in each.queues),
                paused=orders.of_queue(one.name, "", now_ms) is not None,
            )
            for one in views
        ]

    def states(self) -> tuple[dict[str, int], bool]:
        """Return how many records are "queued", "waiting" and "owed", and whether all
        were looked at; else these are estimates, by a sample evenly over all times.
        """
        scale, looks = self._sample
        states = Counter(look.record.state for look in looks)
        # What runs is counted by its claim.
        named = {"queued": State.QUEUED, "waiting": State.WAITING, "owed": State.DEAD}
        return {kind: round(states[one] * (scale or 1)) for kind, one in named.items()}, not scale

    def held_back(self) -> dict[str, dict[str, int]]:
        """Return how many tasks the ledger holds back, by what they wait for and by their names: of
        those looked at, or an estimate by them.
        """
        scale, looks = self._sample
        counts = Counter((kind.value, one.record.name) for one in looks if (kind := held_by(one)))
        found: dict[str, dict[str, int]] = {}
        for (what, name), count in sorted(counts.items()):
            found.setdefault(what, {})[name] = round(count * (scale or 1))
        return found

    @cached_property
    def _sample(self) -> tuple[float, list[Look]]:
        """Records, looked at once, and how many stand for each of them; 0: these are all."""
        total, ids = self.ledger.sample_due(_SAMPLED)
        looks = [look for look in self.ledger.look_all(ids) if look is not None]
        return total / max(1, len(looks)) if total > _SAMPLED else 0, looks

    def _queues_of(self, looks: Sequence[Look]) -> Iterator[str]:
        waiting = [look.record.task_id for look in looks if look.record.state is State.QUEUED]
        step = max(1, len(waiting) // _MESSAGES)
        found: set[tuple[str, str]] = set()
        n_bytes = 0
        for look in filter(
            None, self.ledger.looks_in_groups(waiting[::step], most_bytes=MOST_BYTES)
        ):
            envelope = envelope_of(look.record)
            if envelope is not None and envelope.routing_key:
                found.add((envelope.exchange, envelope.routing_key))
            n_bytes += len(look.record.message)
            if n_bytes > MOST_BYTES:
                break
        for where in found:
            yield from self.broker.reached(*where)

    def _view(self, name: str, now_ms: int) -> Queue:
        steps = self.broker.steps(name, _LOOKED_AT)
        heads = [task_id for step in steps for task_id in step.head if task_id]
        since = [
            look.record.since_ms
            for look in self.ledger.look_all(heads)
            if look is not None and look.record.state is State.QUEUED
        ]
        oldest_ms = min(since, default=0)
        return Queue(
            name=name,
            depth=sum(step.depth for step in steps),
            oldest_seconds=max(0.0, round((now_ms - oldest_ms) / 1000, 3)) if oldest_ms else None,
        )


@dataclass
class Purged:
    """What was removed.  Counts."""

    messages: int = 0
    #: Tasks of ours that were cancelled with their messages.
    records: int = 0


def named_queues(app: Celery, queues: Sequence[str] | None) -> list[str]:
    """Return the names of queues, of which each text may have several; None: all of the app's."""
    if queues is None:
        return sorted(app.amqp.queues)
    return [name.strip() for one in queues for name in one.split(",") if name.strip()]


def purge(
    app: Celery,
    queues: Annotated[
        tuple[str, ...] | None,
        Param("The queues, separated by commas. Default: all.", option="-Q --queues"),
    ] = None,
) -> Purged:
    """Empty queues for good.  Tasks that `celery purge` removes are sent again.

    Messages that workers have fetched still run, and what waits in the ledger stays there: revoke
    those.

    Raises ReliableError, and kombu's errors when the broker cannot be reached.  Results are not
    stored, as by Celery's own purge.  A message is removed after its task was cancelled, so this
    may be killed and repeated at any point.
    """
    done = Purged()
    own_ledger = reliable_of(app).own_ledger(patience_seconds=5.0, is_for_operators=True)
    with (
        closing(own_ledger) as ledger,
        app.connection_for_read() as connection,
        connection.channel() as channel,
    ):
        for queue in named_queues(app, queues):
            while True:
                try:
                    message = channel.basic_get(queue)
                except (KeyError, TypeError, ValueError):
                    # kombu cannot read what anybody may have put there, and has removed it.
                    done.messages += 1
                    continue
                if message is None:
                    break
                headers = message.headers if isinstance(message.headers, dict) else {}
                if epoch := Stamp.of(headers).epoch:
                    task_id = str(headers.get("id"))
                    answer = ledger.cancel(task_id, epoch=epoch, by="its queue was purged")
                    done.records += isinstance(answer, answers.Cancelled)
                channel.basic_ack(message.delivery_tag)
                done.messages += 1
    logger.warning("queues_purged messages=%s records=%s", done.messages, done.records)
    return done


class BrokerUnavailable(ReliableError):
    """The broker could not be reached."""


@contextmanager
def broker_asked(app: Celery) -> Iterator[None]:
    """Raise BrokerUnavailable for the errors by which a broker that is away shows."""
    try:
        yield
    except Exception as exc:
        broker = app.connection_for_read()
        of_broker = (OperationalError, *broker.connection_errors, *broker.channel_errors)
        if isinstance(exc, ReliableError) or not isinstance(exc, of_broker):
            raise
        raise BrokerUnavailable(
            f"The broker could not be reached: {as_shown(exc)}. Check that it is up and that the "
            "app's broker_url names it."
        ) from exc
