"""The broker as the sweeper sees it: unacked hashes of workers, and whether a task's message is
still in its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

from celery_reliable.app import reliable_of, scheme_of
from celery_reliable.broker import (
    Unacked,
    bring_all_back,
    forget_server,
    inbox_of,
    sending_transport_for,
    server_seen,
    unacked_names,
)
from celery_reliable.compat.kombu import list_key, priority_of
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger
from celery_reliable.log import logger
from celery_reliable.message import NAMED, Envelope, Stamp, task_id_of
from celery_reliable.model import Record, SweepReport

__all__ = [
    "BrokerView",
    "Job",
    "Presence",
    "Step",
    "logged_failures",
]

#: How many messages at the end that is popped next are looked at for one of ours.
_LOOKED_AT = 5


@dataclass(frozen=True)
class Step:
    """One of the lists that make a queue on a Redis: that of one priority.

    Attributes:
        priority: as kombu has it; 0 is popped first.
        depth: how many messages wait.
        head: task ids at the end that is popped next, the next one first; "" for a message without.
    """

    priority: int
    depth: int
    head: tuple[str, ...]


@dataclass(frozen=True)
class Waiting:
    """One message that waits in a list.

    Attributes:
        task_id: empty for what is no message of a task of ours.
        is_named: only some workers may run it, or some should.
    """

    key: str
    raw: bytes
    task_id: str = ""
    epoch: str = ""
    is_named: bool = False

    @classmethod
    def of(cls, key: str, raw: bytes) -> Waiting:
        """Read the head of a message; its body is not decoded.  In an unacked hash the message is
        the first of a list.
        """
        # Decoding may raise anything; then it is no message of a task.
        with suppress(Exception):
            found = loads(bytes_to_str(raw))
            payload = found[0] if isinstance(found, list) else found
            headers = payload.get("headers") or {}
            stamp = Stamp.of(headers)
            return cls(key, raw, task_id_of(payload), stamp.epoch, bool(headers.get(NAMED)))
        return cls(key, raw)


class BrokerView:
    """One connection to the broker, for one thread.

    Unacked hashes and lists are those of a Redis.  For other brokers there is `declared_all`.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Any = None
        self._channel: Any = None
        self.is_redis = reliable_of(app).is_redis_broker

    @property
    def channel(self) -> Any:
        """A channel of our transport that consumes nothing, opened when first asked for."""
        if self._channel is None:
            transport = sending_transport_for(scheme_of(reliable_of(self._app).broker_url))
            self._connection = self._app.connection_for_read(transport=transport)
            self._channel = self._connection.channel()
            # kombu learns an exchange's type by its declaration, on each connection anew; without
            # it a topic exchange passes for a direct one, and leads nowhere.
            for queue in self._app.amqp.queues.values():
                if queue.exchange is not None and queue.exchange.name:
                    queue.exchange(self._channel).declare()
        return self._channel

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception as exc:
                logger.debug("broker_view_lost error=%s", exc)

    def unacked(self, name: str) -> Unacked:
        """Return a worker's unacked hash, over this view's own connections."""
        channel = self.channel
        return Unacked(name, channel.pool, channel.global_keyprefix)

    def unacked_names(self) -> list[str]:
        """Return the names of all workers' unacked hashes in which something may be."""
        return unacked_names(self.channel, reliable_of(self._app).config.namespace)

    def seen(self) -> str:
        """Return a name for the queues' server that changes when it may have lost messages; empty
        when that cannot be told.
        """
        return server_seen(self.channel, reliable_of(self._app).config.namespace)

    def bring_back_from_inboxes(self) -> int:
        """Return to their queues what workers that were killed have left on the way from there, and
        how many messages that were.
        """
        channel = self.channel
        lists = [
            channel.global_keyprefix + list_key(channel, queue, int(priority))
            for queue in self._app.amqp.queues
            for priority in channel.priority_steps
        ]
        with channel.conn_or_acquire() as client:
            return bring_all_back(client, channel.global_keyprefix, lists)

    def forget(self) -> None:
        """Remove the mark by which an emptied server is recognized."""
        forget_server(self.channel, reliable_of(self._app).config.namespace)

    def task_ids_in(self, hashes: Iterable[str]) -> set[str]:
        """Return the ids of the tasks whose messages are in *hashes*, or in the shared hash that
        workers without the package use.
        """
        found = {entry.task_id for name in hashes for entry in self.unacked(name).each_entry()}
        channel = self.channel
        with channel.conn_or_acquire() as client:
            shared = channel.global_keyprefix + channel.unacked_key
            for _, value in client.hscan_iter(shared, count=50):
                found.add(Waiting.of(shared, value).task_id)
        return found - {""}

    def declared_all(self, queues: Iterable[str]) -> dict[str, tuple[int, int] | None]:
        """Return how many messages wait in each of *queues*, and how many consumers it has, by what
        the broker answers to a passive declaration; None for a queue that is not there.

        For brokers other than Redis: what those deliver and nobody has acknowledged is not counted.
        """
        found: dict[str, tuple[int, int] | None] = {}
        with self._app.connection_for_read() as connection:
            errors = (*connection.channel_errors, *connection.connection_errors)
            for queue in queues:
                # A broker closes the channel that asked for what is not there.
                with connection.channel() as channel:
                    try:
                        answer = channel.queue_declare(queue, passive=True)
                        found[queue] = int(answer.message_count), int(answer.consumer_count)
                    except errors as exc:
                        logger.info("queue_not_seen queue=%s error=%s", queue, exc)
                        found[queue] = None
        return found

    def reached(self, exchange: str, routing_key: str) -> list[str]:
        """Return the queues that a message for *exchange* leads to, as far as can be told."""
        if not exchange or not self.is_redis:
            return [routing_key]
        channel = self.channel
        table = channel.get_table(exchange)
        found = channel.typeof(exchange).lookup(table, exchange, routing_key, None)
        return sorted(found) or [channel.deadletter_queue or routing_key]

    def steps(self, queue: str, looked_at: int) -> list[Step]:
        """Return a queue's lists on a Redis, one for each priority, each with the ids of at most
        *looked_at* messages that are popped next.
        """
        channel = self.channel
        priorities = [int(priority) for priority in channel.priority_steps]
        found = []
        with channel.conn_or_acquire() as client:
            pipe = client.pipeline(transaction=False)
            for priority in priorities:
                key = list_key(channel, queue, priority)
                # kombu's client adds its prefix to the key of LLEN, but not to that of LINDEX.
                pipe.llen(key)
                # Not LRANGE: before Redis 7 it walks there from the other end of the list.
                for index in range(1, looked_at + 1):
                    pipe.lindex(channel.global_keyprefix + key, -index)
            answers = pipe.execute()
        width = looked_at + 1
        for number, priority in enumerate(priorities):
            depth, *items = answers[number * width : (number + 1) * width]
            head = tuple(Waiting.of(queue, item).task_id for item in items if item is not None)
            found.append(Step(priority, int(depth), head))
        return found

    def messages_in(self, queue: str, limit: int) -> list[Waiting]:
        """Return messages of a queue on a Redis, about *limit* at the most, those first that are
        popped next: also what a worker has left in an inbox.
        """
        channel, prefix = self.channel, self.channel.global_keyprefix
        found: list[Waiting] = []
        # kombu's client does not add its prefix to the key of LRANGE.
        lists = [
            prefix + list_key(channel, queue, int(priority)) for priority in channel.priority_steps
        ]
        with channel.conn_or_acquire() as client:
            for key in [each for one in lists for each in (inbox_of(one, prefix), one)]:
                left = limit - len(found)
                raws = client.lrange(key, -left, -1) if left > 0 else []
                found += [Waiting.of(key, raw) for raw in reversed(raws)]
        return found

    def remove(self, messages: Iterable[Waiting]) -> None:
        """Remove messages from their lists, those that are there yet."""
        channel = self.channel
        with channel.conn_or_acquire() as client:
            pipe = client.pipeline(transaction=False)
            for one in messages:
                pipe.execute_command("LREM", one.key, -1, one.raw)
            pipe.execute()

    def heads(self, envelope: Envelope) -> list[list[str]]:
        """Return, for each queue the message leads to, the task ids at the end that is popped next,
        the next one first.

        A message without an id counts as "".  An empty list: nothing waits in that queue.  Of a
        broker other than Redis it is only known whether something waits; nothing is known of a
        queue that is not there, or behind an exchange whose queues only the broker knows.
        """
        if not self.is_redis:
            queue = envelope.routing_key
            found = None if envelope.exchange else self.declared_all([queue])[queue]
            return [[""]] if found is not None and found[0] else []
        channel = self.channel
        priority = priority_of(channel, {"properties": dict(envelope.properties)})
        return [
            list(step.head)
            for queue in self.reached(envelope.exchange, envelope.routing_key)
            for step in self.steps(queue, _LOOKED_AT)
            if list_key(channel, queue, step.priority) == list_key(channel, queue, priority)
        ]


class Job:
    """What the parts of a pass have: for one sweeper, and so for one thread."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView) -> None:
        self.app = app
        self.config = reliable_of(app).config
        self.ledger = ledger
        self.broker = broker


@contextmanager
def logged_failures(report: SweepReport, line: str, *about: object) -> Iterator[None]:
    """Log and count what fails for one of many, which must not hold up the others: a record that
    cannot be read, a message that cannot be moved.  Lets through what the ledger raises, as the
    others would fail like that too.
    """
    try:
        yield
    except (LedgerUnavailable, LedgerRefused):
        raise
    except Exception as exc:
        logger.error(line, *about, exc, exc_info=exc)
        report.failed += 1


#: What waits in a queue is looked at at least once in this many QUEUED_SECONDS.
RAREST_LOOK = 10


class Presence:
    """What one pass has seen of queues and unacked hashes.  Each is read once, when needed."""

    def __init__(self, job: Job, *, alive: list[WorkerLease], dead: list[WorkerLease]) -> None:
        self._job = job
        self._alive = alive
        self._dead = dead
        self._ends: dict[tuple[str, str, str], list[tuple[set[str], float]]] = {}
        self._held: set[str] | None = None

    def is_held(self, task_id: str) -> bool:
        """Whether a worker holds its message, other than a dead one that it is taken from."""
        if self._held is None:
            self._held = set()
            if self._job.broker.is_redis:
                # A server that lost records may know nothing of a worker that lives.
                strangers = {*self._job.broker.unacked_names()} - {
                    lease.unacked for lease in self._dead
                }
                hashes = strangers | {one.unacked for one in self._alive if one.unacked}
                self._held = self._job.broker.task_ids_in(hashes)
        return task_id in self._held

    def wait_in_queue_ms(self, record: Record, now_ms: int) -> int:
        """Return after how many ms to look again if the message can still be in its queue, else 0.

        It can be there if what is popped next was sent before it, and in doubt.  A wrong 0 costs a
        second message, which the claim refuses.
        """
        envelope = Envelope.from_text(record.message)
        where = (envelope.exchange, envelope.routing_key, str(envelope.properties.get("priority")))
        # Read once in a pass, however many records are overdue.
        if where not in self._ends:
            self._ends[where] = self._ends_of(envelope)
        sent_ms, queued_ms = record.since_ms, self._job.config.queued_ms
        found = [
            oldest
            for ids, oldest in self._ends[where]
            if record.task_id in ids or oldest <= sent_ms
        ]
        if not any(found):
            return queued_ms if found else 0
        # The longer it has waited, the rarer the looks: a backlog that nobody works off must not be
        # read over and over.
        return min(max(queued_ms, (now_ms - sent_ms) // 2), RAREST_LOOK * queued_ms)

    def _ends_of(self, envelope: Envelope) -> list[tuple[set[str], float]]:
        """Return, of each queue that a message leads to, the ids at the end that is popped next,
        and when the oldest of them was sent, in ms; 0 if that is not known.
        """
        ends = []
        for head in self._job.broker.heads(envelope):
            found = self._job.ledger.find_each([task_id for task_id in head if task_id])
            sent = [one.record.since_ms for one in found if one.is_readable and one.record]
            if head:
                ends.append((set(head), float(min(sent, default=0))))
        return ends
