"""What is published: tasks of all kinds, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from celery import chain, chord, group

from proof.cuts.log import Log

__all__ = ["AT_MOST", "Load"]

#: How many may have an object at once, of those objects of which it is more than one.
AT_MOST = {f"three-{number}": 3 for number in range(2)}
_SECONDS = (0.02, 0.6)
#: As long as a worker may be away.
_LONG_SECONDS = (2.0, 5.0)
_COUNTDOWN_SECONDS = (1.0, 8.0)


class Load:
    """Publishes one thing after another; what it was told is published, it notes."""

    def __init__(self, app: Any, log: Log, seed: str) -> None:
        self._app = app
        self._log = log
        self._dice = random.Random(f"load {seed}")
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (8, self._work),
            (3, self._long),
            (3, self._parked),
            (3, self._retried),
            (4, self._in_line),
            (3, self._three),
            (2, self._in_conflict),
            (3, self._unique),
            (3, self._paced),
            (2, self._named),
            (2, self._chord),
            (2, self._chain),
            (2, self._group),
            (1, self._deadly),
            (1, self._failing),
            (1, self._poison),
        ]

    def publish(self) -> None:
        """Publish what comes next.  Raises whatever its publication raises."""
        weights = [weight for weight, _ in self._kinds]
        (kind,) = self._dice.choices([kind for _, kind in self._kinds], weights)
        kind()

    def _send(self, name: str, *arguments: Any, **options: Any) -> None:
        self._log.published(self._task(name).apply_async(arguments, **options).id)

    def _task(self, name: str) -> Any:
        return self._app.tasks[f"project.{name}"]

    def _seconds(self) -> float:
        return round(self._dice.uniform(*_SECONDS), 2)

    def _work(self) -> None:
        self._send("work", self._seconds())

    def _long(self) -> None:
        self._send("work", round(self._dice.uniform(*_LONG_SECONDS), 1))

    def _parked(self) -> None:
        countdown = self._dice.uniform(*_COUNTDOWN_SECONDS)
        self._send("work", self._seconds(), countdown=countdown)

    def _retried(self) -> None:
        steps = ["retry"] * self._dice.randint(1, 2) + ["finish"]
        self._send("follow", steps, self._dice.choice([0, 0.5, 3]))

    def _in_line(self) -> None:
        self._send("in_line", f"line-{self._dice.randrange(3)}", self._seconds())

    def _three(self) -> None:
        self._send("three", self._dice.choice(list(AT_MOST)), self._seconds())

    def _in_conflict(self) -> None:
        self._send("locked_retry", f"retried-{self._dice.randrange(4)}", self._seconds())

    def _unique(self) -> None:
        self._send("only_one", f"unique-{self._dice.randrange(3)}", self._seconds())

    def _paced(self) -> None:
        self._send("paced", "paced", 0.05)

    def _named(self) -> None:
        self._send("on_gpu", "named", self._seconds())

    def _chord(self) -> None:
        headers = [uuid4().hex for _ in range(self._dice.randint(2, 4))]
        body = uuid4().hex
        add, total = self._task("add"), self._task("total")
        self._log.note("chord", body=body, headers=headers)
        chord([add.s(1, 1).set(task_id=one) for one in headers])(total.s().set(task_id=body))
        self._log.published(*headers)

    def _chain(self) -> None:
        add, ids = self._task("add"), [uuid4().hex for _ in range(3)]
        first, *others = ids
        links = [add.s(1, 1).set(task_id=first), *(add.s(1).set(task_id=one) for one in others)]
        chain(*links).apply_async()
        self._log.published(*ids)

    def _group(self) -> None:
        ids = [uuid4().hex for _ in range(self._dice.randint(2, 5))]
        group(self._task("work").s(self._seconds()).set(task_id=one) for one in ids).apply_async()
        self._log.published(*ids)

    def _deadly(self) -> None:
        self._send("poison_times", self._dice.randint(1, 2))

    def _failing(self) -> None:
        self._send("follow", ["fail", "finish"])

    def _poison(self) -> None:
        # With one loss more than it may have it is dead; it lives when it is replayed.
        self._send("poison_times", 4)
