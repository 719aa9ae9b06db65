"""Transitions of tasks that only some workers may run, and of those workers' own queues."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.ledger import rows
from celery_reliable.ledger.answers import (
    Assigned,
    BegunRun,
    DivertAnswer,
    EndRunAnswer,
    MoveAnswer,
    UnlistAnswer,
    WaitAnswer,
    Waits,
)
from celery_reliable.ledger.caller import Part, clock_of, ms_of, text_of
from celery_reliable.ledger.records import Records
from celery_reliable.model import Due, Record, State
from celery_reliable.orders import Orders

__all__ = [
    "LivingWorker",
    "LivingWorkers",
    "NamedTasks",
    "Run",
    "Runs",
]


_READ_AT_ONCE = 500


class NamedTasks(Part):
    """Tasks that wait for workers, and the queues that one worker each consumes."""

    def divert(
        self, task_id: str, epoch: str, *, patience_seconds: float | None = None
    ) -> DivertAnswer:
        """Have a queued task sent again at once, as a message of it is where nobody may run it."""
        return self._caller.run(self.calls.divert(id=task_id, epoch=epoch), patience_seconds)

    def divert_all(self, messages: Sequence[tuple[str, str]]) -> list[DivertAnswer]:
        """Do the same for many: the id and the epoch of each message.  Returns the answers."""
        return self._caller.run_all(
            [self.calls.divert(id=task_id, epoch=epoch) for task_id, epoch in messages]
        )

    def wait(self, due: Due, named: str, *, due_in_ms: int) -> WaitAnswer:
        """Let a task wait in the ledger for a worker that may run it.

        *named*: which may, as text.  It is looked at again in *due_in_ms*, or when it is woken.
        """
        return self._caller.run(
            self.calls.wait(id=due.task_id, epoch=due.due_ms, in_ms=due_in_ms, named=named)
        )

    def move(
        self,
        record: Record,
        *,
        epoch: str,
        message: str,
        named: str,
        is_stopped: bool,
        due_in_ms: int,
        by: str,
    ) -> MoveAnswer:
        """Publish the task of a *record* that was seen as another publication, which names others.

        *epoch*: of that, and of its *message*.  *named*: the workers, as text; "{}" for any.
        *is_stopped*: the worker of the attempt that runs has to stop it; in *due_in_ms* somebody
        looks whether it has.  *by*: who says so.
        """
        is_running = record.state is State.RUNNING
        return self._caller.run(
            self.calls.move(
                id=record.task_id,
                seen=record.next_epoch or record.epoch,
                epoch=epoch,
                message=message,
                named=named,
                worker=record.owner if is_stopped else "",
                attempt=record.attempt if is_running else None,
                token=record.token if is_running else "",
                is_stopped=is_stopped,
                due_in_ms=due_in_ms,
                by=by,
            )
        )

    def divert_waiting(self, task_ids: Sequence[str]) -> list[DivertAnswer]:
        """Let tasks that wait for a worker be sent, as one is alive.  Returns the answers."""
        return self._caller.run_all(
            [self.calls.divert(id=one, is_waiting=True) for one in task_ids]
        )

    def unlist(self, queue: str, registered_ms: str) -> UnlistAnswer:
        """Forget the own queue of workers that are gone, unless one has registered since."""
        return self._caller.run(self.calls.unlist(queue=queue, registered_ms=registered_ms))

    def waiting(self) -> int:
        """Return how many tasks wait for a worker."""
        found = self._caller.read(
            "waiting", lambda client: client.hlen(self.keys.waiting("workers"))
        )
        return int(found)

    def each_waiting(self, at_once: int = _READ_AT_ONCE) -> Iterator[list[tuple[str, str]]]:
        """Yield the ids of those tasks, with which workers may run each, about *at_once* at a
        time.
        """
        cursor = 0
        while True:
            found: tuple[int, dict[bytes, bytes]] = self._caller.read(
                "tasks that wait for workers",
                lambda client, at=cursor: client.hscan(  # type: ignore[misc]
                    self.keys.waiting("workers"), at, count=at_once
                ),
            )
            cursor, some = found
            yield [(text_of(task_id), text_of(named)) for task_id, named in some.items()]
            if not cursor:
                return

    def queues(self, *, patience_seconds: float | None = None) -> list[tuple[str, str]]:
        """Return the own queues of workers, and when a worker last registered for each."""
        found = self._caller.read(
            "workers' own queues",
            lambda client: client.zrange(self.keys.direct, 0, -1, withscores=True),
            patience_seconds,
        )
        return [(text_of(queue), f"{score:.0f}") for queue, score in found]


@dataclass(frozen=True)
class Run:
    """A run, and which worker each of its members has.

    Attributes:
        only: patterns of the workers; none: any.
        members: task id -> the worker that it is assigned to, first, and those that it had and may
            yet begin on; none while it waits.
    """

    id: str
    name: str
    only: tuple[str, ...]
    begun_ms: int
    members: dict[str, tuple[str, ...]]


class Runs(Part):
    """The runs of a namespace: each is one task on several workers, on each of them once."""

    def begin(
        self, run: str, members: Sequence[str], *, name: str, only: Sequence[str], due_in_ms: int
    ) -> BegunRun:
        """Note a run and the ids of its members, before they are published.

        In *due_in_ms* a pass looks whether it is over.
        """
        return self._caller.run(
            self.calls.begin_run(
                id=run, name=name, only=json.dumps([*only]), due_in_ms=due_in_ms, members=members
            )
        )

    def assign(
        self,
        run: str,
        member: str,
        workers: Sequence[str],
        *,
        patience_seconds: float | None = None,
    ) -> str | None:
        """Give a member the first of *workers* that no other member has; return its name, empty
        while each has one.  None: nobody knows of the run any more.
        """
        step = self.calls.assign(run=run, member=member, workers=workers)
        answer = self._caller.run(step, patience_seconds)
        if isinstance(answer, Assigned):
            return answer.worker
        return "" if isinstance(answer, Waits) else None

    def confirm(self, run: str, member: str, worker: str) -> None:
        """Note that a member begins on this worker alone; on none, where it is empty."""
        self._caller.run(
            self.calls.assign(run=run, member=member, is_confirmed=True, workers=[worker])
        )

    def look_later(self, run: str, due_ms: str, *, due_in_ms: int) -> EndRunAnswer:
        """Look at a run again in *due_in_ms*, as it goes on."""
        return self._caller.run(self.calls.end_run(id=run, due_ms=due_ms, due_in_ms=due_in_ms))

    def end(self, run: str, due_ms: str, *, keep_ms: int) -> EndRunAnswer:
        """Forget a run that is over, in *keep_ms*."""
        return self._caller.run(self.calls.end_run(id=run, due_ms=due_ms, keep_ms=keep_ms))

    def find(self, run: str) -> Run | None:
        """Return a run; None of one that is forgotten, or never was."""
        found: dict[bytes, bytes] = self._caller.read(
            "run", lambda client: client.hgetall(self.keys.run(run))
        )
        told = {text_of(name): text_of(value) for name, value in found.items()}
        if not told:
            return None
        return Run(
            run,
            told.get(":name", ""),
            tuple(json.loads(told.get(":only") or "[]")),
            int(told.get(":begun_ms") or 0),
            {
                name: tuple(filter(None, value.split("\n")))
                for name, value in told.items()
                if not name.startswith(":")
            },
        )

    def known(self, limit: int) -> list[str]:
        """Return the ids of runs that are not over, as far as passes know; at most *limit*."""
        found: list[bytes] = self._caller.read(
            "runs", lambda client: client.zrange(self.keys.runs, 0, limit - 1)
        )
        return [text_of(name) for name in found]

    def due(self, limit: int) -> list[tuple[str, str]]:
        """Return the runs that are to be looked at by now, and when that was, in ms."""

        now_ms = ms_of(*self._caller.read_all("time", clock_of(self.keys)))
        found: list[tuple[bytes, float]] = self._caller.read(
            "runs that are due",
            lambda client: client.zrangebyscore(
                self.keys.runs, "-inf", now_ms, start=0, num=limit, withscores=True
            ),
        )
        return [(text_of(name), f"{score:.0f}") for name, score in found]


_FIELDS = (*rows.LEASE_FIELDS, "doing")


@dataclass
class LivingWorker:
    """A worker that lives and can be sent a task.

    Attributes:
        nodename: as Celery has it; two workers may have the same, and then consume the same queue.
        queue: its own.
        slots: how many tasks it runs at once.
        held: how many it runs or has fetched, and how many wait in its queue.
    """

    worker: str
    nodename: str
    queue: str
    slots: int = 1
    held: int = 0

    @property
    def load(self) -> float:
        """How much it has to do before it can begin another task."""
        return self.held / self.slots


class LivingWorkers:
    """Reads the workers that live and consume a queue of their own when it is asked, unless it has
    just done so.  Any thread may ask.

    What is read may have changed by the time it is used: claims decide, and what was sent to a
    worker that is gone is sent to another.

    Args:
        ledger: whose workers.
        app: the name of the app; workers of another one that shares the ledger are left out.
        key_of: the key of the list of a queue in the ledger's own database; None: queues are
            elsewhere, and what waits in them is not counted.
    """

    def __init__(
        self, ledger: Records, app: str, key_of: Callable[[str], str] | None = None
    ) -> None:
        self._ledger = ledger
        self._app = app
        self._key_of = key_of
        self._found: list[LivingWorker] = []
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def close(self) -> None:
        """Forget what was read."""
        self._read_at = float("-inf")

    def now(self, *, within: float, patience_seconds: float | None = None) -> list[LivingWorker]:
        """Return them, as they were *within* so many seconds.  Raises what the ledger raises."""
        if time.monotonic() - self._read_at >= within:
            found = self.read(patience_seconds=patience_seconds)
            with self._lock:
                self._found, self._read_at = found, time.monotonic()
        return self._found

    def read(self, *, patience_seconds: float | None = None) -> list[LivingWorker]:
        """Return them as they are now."""
        return self._ledger.ask("living workers", self._read, patience_seconds)

    def _read(self, client: Any) -> list[LivingWorker]:
        keys = self._ledger.keys
        names = [
            (name.decode(), until_ms)
            for name, until_ms in client.zrange(keys.workers, 0, -1, withscores=True)
        ]
        if not names:
            return []
        pipe = client.pipeline(transaction=False)
        pipe.hgetall(keys.orders)
        for name, _ in names:
            pipe.hmget(keys.worker(name), _FIELDS)
            pipe.hlen(keys.claims(name))
        for command in clock_of(keys):
            pipe.execute_command(*command)
        told, *answers, time, kept = pipe.execute()
        now_ms = ms_of(time, kept)
        orders = Orders.of({text_of(one): text_of(text) for one, text in told.items()}, now_ms)
        found = []
        for (name, until_ms), row, claims in zip(names, answers[::2], answers[1::2], strict=True):
            one = self._living(name, int(until_ms), now_ms, row, int(claims))
            # One that is drained takes nothing.
            if one is not None and orders.of_queue(one.queue, one.nodename, now_ms) is None:
                found.append(one)
        self._count_waiting(client, found)
        return found

    def _living(
        self, name: str, until_ms: int, now_ms: int, row: Sequence[bytes | None], claims: int
    ) -> LivingWorker | None:
        lease = rows.lease(name, until_ms, row[:-1])
        app = lease.project[0]
        if lease.is_dead or until_ms <= now_ms or not lease.direct_queue:
            return None
        if app and self._app and app != self._app:
            return None
        doing = json.loads(row[-1] or "{}")
        if doing.get("leaving"):
            return None
        fetched = doing.get("fetched")
        return LivingWorker(
            name,
            lease.nodename,
            lease.direct_queue,
            slots=max(1, int(doing.get("slots") or 1)),
            held=max(claims, fetched if isinstance(fetched, int) else 0),
        )

    def _count_waiting(self, client: Any, found: list[LivingWorker]) -> None:
        if self._key_of is None or not found:
            return
        pipe = client.pipeline(transaction=False)
        for one in found:
            pipe.llen(self._key_of(one.queue))
        for one, length in zip(found, pipe.execute(), strict=True):
            one.held += int(length)
