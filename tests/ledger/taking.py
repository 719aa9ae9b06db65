"""Queues from which a process takes its own messages."""

from __future__ import annotations

import json
from itertools import count
from typing import Any
from uuid import uuid4

from celery_reliable.broker import Queues, take_text
from celery_reliable.ledger import TakenMessage
from celery_reliable.message import Stamp
from tests.ledger.scene import Published, Scene


class Taking:
    """Queues "a" and "b" of two priorities, and an unacked hash."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.prefix = uuid4().hex[:8]
        self._numbers = count(1)
        self.unacked = f"unacked:{self.prefix}"
        lists = [f"{self.prefix}{queue}{p}" for p in (0, 3) for queue in "ab"]
        self.queues = Queues(self.unacked, "listed", self.unacked, ["a", "b"], lists, ["app.cold"])

    def put(
        self, task_id: str, queue: str = "a", priority: int = 0, *, unique: str | None = None,
        returns: int = 0, **headers: Any,
    ) -> Published:  # fmt: skip
        """Publish a task, and put its message into a list."""
        published = self.scene.publish(task_id, unique=unique)
        stamp = Stamp(published.generation, published.epoch).of_task(task_id)
        # As this package publishes what nothing may keep from being claimed at once.
        about = {"reliable": stamp, "lang": "py", "task": "app.work", "id": task_id, **headers}
        payload = {
            # What a body says is no header.
            "body": '}, "headers": {"id": "other"}, "properties": {}',
            "headers": about,
            "properties": {
                "delivery_info": {},
                **({"reliable_returns": returns} if returns else {}),
            },
        }
        raw = json.dumps(payload)
        self.scene.client.lpush(f"{self.prefix}{queue}{priority}", raw)
        return published

    def next_tag(self) -> str:
        """Return a tag with a greater number than those before."""
        return f"shift.{next(self._numbers)}"

    def take(self, tag: str, done: str = "", **options: Any) -> TakenMessage:
        step = self.step(tag, done, **options)
        return self.scene.ledger.take(step)

    def step(self, tag: str, done: str = "", text: str = "") -> Any:
        text = text or take_text()
        steps = self.scene.ledger.take_steps(text, self.queues, worker="me", slot="1", pid=7)
        return steps.step(tag, done=[done] if done else [], filed_ms=1)

    def filed(self) -> set[bytes]:
        return set(self.scene.client.hkeys(self.unacked))
