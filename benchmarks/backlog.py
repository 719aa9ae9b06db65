"""A Redis full of queued tasks that nobody runs, made quickly.

They are what publishing makes, to the byte: a real one is published for each queue, and copied with
another id, epoch and delivery tag, its record by the ledger's own script.  A second real one is
compared with its copy first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from celery import Celery, Task
from redis import Redis

from celery_reliable.app import reliable_of
from celery_reliable.message.envelope import Envelope, Stamp, new_epoch
from tests.support.redis_server import RedisServer

__all__ = ["Backlog"]

_PIPELINED = 500


@dataclass(frozen=True)
class _Published:
    """One task as publishing left it: its record's message, and what lies in the queue."""

    task_id: str
    epoch: str
    tag: str
    message: str
    raw: str

    def copied(self, text: str, task_id: str, epoch: str, tag: str) -> str:
        old, new = Stamp("", self.epoch), Stamp("", epoch)
        # The end of the header that binds the epoch to the id.
        text = text.replace(old.of_task(self.task_id), new.of_task(task_id))
        text = text.replace(self.task_id, task_id)
        return text.replace(self.tag, tag)


class Backlog:
    """Fills the queues of one app's broker, and its ledger, on one server."""

    def __init__(self, app: Celery, task: Task, server: RedisServer) -> None:
        self.app = app
        self.task = task
        self.client: Any = Redis(port=server.port, socket_timeout=60)
        self.ledger = reliable_of(app).ledger
        self._templates: dict[str, _Published] = {}

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def add(
        self, queue: str, count: int, *, due_in_ms: int, age_ms: int = 0, is_sent: bool = True
    ) -> list[str]:
        """Publish *count* tasks and return their ids.

        *age_ms*: as if that had been so long ago.  Without *is_sent* there are records only: the
        messages were lost.
        """
        template = self._template(queue)
        generation = Stamp.of(Envelope.from_text(template.message).headers).generation
        fresh = [str(uuid4()) for _ in range(count)]
        for start in range(0, count, _PIPELINED):
            pipe = self.client.pipeline(transaction=False)
            for task_id in fresh[start : start + _PIPELINED]:
                epoch, tag = new_epoch(0), str(uuid4())
                message = template.copied(template.message, task_id, epoch, tag)
                # As one sender would, one step for each; of none whom anybody has to remember.
                step = self.ledger.calls.record(
                    id=task_id,
                    name=self.task.name,
                    epoch=epoch,
                    generation=generation,
                    due_in_ms=due_in_ms,
                    message=message,
                    used=True,
                    worker="",
                    sender="",
                    queue=queue if is_sent else "",
                    is_sent=is_sent,
                )
                pipe.evalsha(*step.call)
                if age_ms:
                    for time in ("published_ms", "since_ms"):
                        pipe.hincrby(self.ledger.keys.record(task_id), time, -age_ms)
            pipe.execute()
        return fresh

    def _template(self, queue: str) -> _Published:
        """Publish a real task and take it away again; see that a copy of it is like another."""
        if queue not in self._templates:
            self._templates[queue] = self._taken(self._publish(queue), queue)
            real_id = self._publish(queue)
            real = self._row(real_id)
            like = self._taken(real_id, queue)
            template = self._templates[queue]
            parts = (like.task_id, like.epoch, like.tag)
            if template.copied(template.raw, *parts) != like.raw or (
                template.copied(template.message, *parts) != like.message
            ):
                raise AssertionError(f"a copy is not what publishing makes: {like}")
            [copy_id] = self.add(queue, 1, due_in_ms=0)
            copy = self._row(copy_id)
            self._taken(copy_id, queue)
            different = {name for name in real.keys() | copy.keys() if real.get(name) != copy[name]}
            if different - {b"message", b"epoch", b"published_ms", b"since_ms"}:
                raise AssertionError(f"a copied record is not what publishing makes: {different}")
        return self._templates[queue]

    def _publish(self, queue: str) -> str:
        task_id = str(uuid4())
        self.task.apply_async(task_id=task_id, queue=queue, ignore_result=True)
        return task_id

    def _row(self, task_id: str) -> dict[bytes, bytes]:
        return dict(self.client.hgetall(self.ledger.keys.record(task_id)))

    def _taken(self, task_id: str, queue: str) -> _Published:
        """Take the task that was published last out of ledger and queue."""
        row, raw = self._row(task_id), self.client.lpop(queue).decode()
        self.client.delete(self.ledger.keys.record(task_id))
        self.client.zrem(self.ledger.keys.due, task_id)
        payload = json.loads(raw)
        return _Published(
            task_id,
            Stamp.of(payload["headers"]).epoch,
            payload["properties"]["delivery_tag"],
            row[b"message"].decode(),
            raw,
        )
