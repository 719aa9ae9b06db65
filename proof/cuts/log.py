"""The log that the checker reads: written by publishers, tasks, and who listens to results."""

from __future__ import annotations

import json
import threading
from typing import Any

import redis
from celery.states import READY_STATES

from celery_reliable.results.fenced import MARK
from tests.support.effects import ALIVE_KEY, APPEND_ROW, ROWS_KEY

__all__ = ["Log", "Outcomes"]

_RESULTS = "celery-task-meta-"
_WAKE_SECONDS = 0.2


class Log:
    """Rows of `proof.checker`, kept in a Redis apart, with the times of its clock."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def note(self, kind: str, **fields: Any) -> None:
        """Write a row."""
        self.client.eval(APPEND_ROW, 1, ROWS_KEY, json.dumps({"kind": kind, **fields}))

    def publish(self, task: str) -> None:
        """Somebody is about to publish this id."""
        self.note("publish", task=task)

    def published(self, *tasks: str) -> None:
        """Somebody has been told that these are published."""
        for task in tasks:
            self.note("published", task=task)

    def reopened(self, task: str) -> None:
        """An operator is about to have it run again."""
        self.note("reopened", task=task)

    def rows(self, objects: dict[str, str]) -> list[dict[str, Any]]:
        """All rows by now; *objects* says which object the tasks of a name have."""
        found = []
        lines: list[bytes] = self.client.lrange(ROWS_KEY, 0, -1)  # type: ignore[assignment]
        for line in lines:
            at, _, text = line.partition(b" ")
            row = {**json.loads(text), "at": int(at)}
            found.append(_begun(row, objects) if row["kind"] == "start" else row)
        alive: dict[bytes, bytes] = self.client.hgetall(ALIVE_KEY)  # type: ignore[assignment]
        for run, seen in alive.items():
            found.append({"kind": "alive", "run": run.decode(), "at": int(seen)})
        for row in found:
            if "run_id" in row:
                row["run"] = row.pop("run_id")
        return found


def _begun(row: dict[str, Any], objects: dict[str, str]) -> dict[str, Any]:
    return {
        "kind": "begin",
        "at": row["at"],
        "run": row["run_id"],
        "task": row["task_id"],
        "name": row["task"],
        "attempt": row["attempt"],
        "worker": row["worker"],
        "pid": row["pid"],
        "object": row["object_id"] or objects.get(row["task"]),
    }


class Outcomes:
    """Listens to the results that a Redis publishes, and notes those that are final.

    A result is noted a moment after it was stored, so a run that follows it is not seen to begin
    before it, and one that came before it is not seen to follow it.
    """

    def __init__(self, server: redis.Redis, log: Log) -> None:
        self._log = log
        self._listener = server.pubsub(ignore_subscribe_messages=True)
        self._listener.psubscribe(f"{_RESULTS}*")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._is_over.set()
        self._thread.join()
        self._listener.close()

    def _listen(self) -> None:
        while not self._is_over.is_set():
            try:
                message = self._listener.get_message(timeout=_WAKE_SECONDS)
            except redis.RedisError:
                # It is away; the next call connects and subscribes anew.
                self._is_over.wait(_WAKE_SECONDS)
                continue
            if message is None:
                continue
            stored = json.loads(message["data"])
            if stored["status"] in READY_STATES:
                task = message["channel"].decode().removeprefix(_RESULTS)
                # Whose reply was lost stores it again: it names its attempt.
                self._log.note("settled", task=task, state=stored["status"], by=stored.get(MARK))
