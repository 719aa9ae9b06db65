"""Transitions of tasks that only some workers may run, and of those workers' own queues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_reliable.ledger.answers import (
    Assigned,
    BegunRun,
    DivertAnswer,
    EndRunAnswer,
    UnlistAnswer,
    WaitAnswer,
    Waits,
)
from celery_reliable.ledger.caller import Part, clock_of, ms_of
from celery_reliable.ledger.indexes import WorkerLook
from celery_reliable.ledger.schema import text_of
from celery_reliable.model import Due

if TYPE_CHECKING:
    from celery_reliable.ledger import Ledger

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

    def divert_all(
        self, messages: Iterable[tuple[str, str]], *, is_waiting: bool = False
    ) -> list[DivertAnswer]:
        """Do the same for many: the id and the epoch of each message.  Returns the answers.

        *is_waiting*: those that wait for a worker are to be sent, of any epoch, as one is alive.
        """
        return self._caller.run_all(
            [
                self.calls.divert(id=task_id, epoch=epoch, is_waiting=is_waiting)
                for task_id, epoch in messages
            ]
        )

    def wait(self, due: Due, named: str, *, due_in_ms: int) -> WaitAnswer:
        """Let a task wait in the ledger for a worker that may run it.

        *named*: which may, as text.  It is looked at again in *due_in_ms*, or when it is woken.
        """
        return self._caller.run(
            self.calls.wait(
                id=due.task_id,
                epoch=due.due_ms,
                in_ms=due_in_ms,
                waits_for="workers",
                named=named,
                key="",
            )
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

    def lengths(self, lists: Sequence[str], *, patience_seconds: float | None = None) -> list[int]:
        """Return how many messages wait in each of some lists on this server."""
        return self._caller.read_all(
            "own queues", [("LLEN", one) for one in lists], patience_seconds
        )

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

    def end(
        self, run: str, due_ms: str, *, keep_ms: int | None = None, due_in_ms: int | None = None
    ) -> EndRunAnswer:
        """Forget a run that is over, in *keep_ms*; or look at it again in *due_in_ms*."""
        step = self.calls.end_run(id=run, due_ms=due_ms, keep_ms=keep_ms, due_in_ms=due_in_ms)
        return self._caller.run(step)

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
        self, ledger: Ledger, app: str, key_of: Callable[[str], str] | None = None
    ) -> None:
        self._ledger = ledger
        self._app = app
        self._key_of = key_of
        self._found: list[LivingWorker] = []
        self._read_at = float("-inf")

    def close(self) -> None:
        """Forget what was read."""
        self._read_at = float("-inf")

    def now(self, *, within: float, patience_seconds: float | None = None) -> list[LivingWorker]:
        """Return them, as they were *within* so many seconds.  Raises what the ledger raises."""
        if time.monotonic() - self._read_at >= within:
            self._found = self.read(patience_seconds=patience_seconds)
            self._read_at = time.monotonic()
        return self._found

    def read(self, *, patience_seconds: float | None = None) -> list[LivingWorker]:
        """Return them as they are now."""
        ledger, found = self._ledger, []
        orders = ledger.orders.read(patience_seconds)
        # Of workers that are alike the first one is chosen: not always the same.
        looks = ledger.worker_looks(patience_seconds)
        for look in sorted(looks, key=lambda look: look.lease.until_ms):
            one = self._living(look, orders.now_ms)
            # One that is drained takes nothing.
            if one is not None and not orders.of_queue(one.queue, one.nodename, orders.now_ms):
                found.append(one)
        if self._key_of is not None:
            keys = [self._key_of(one.queue) for one in found]
            lengths = ledger.named.lengths(keys, patience_seconds=patience_seconds)
            for one, length in zip(found, lengths, strict=True):
                one.held += length
        return found

    def _living(self, look: WorkerLook, now_ms: int) -> LivingWorker | None:
        lease, doing = look.lease, look.doing
        app, fetched = lease.project[0], doing.get("fetched")
        is_of_another = app and self._app and app != self._app
        if lease.is_dead or lease.until_ms <= now_ms or not lease.direct_queue or is_of_another:
            return None
        if doing.get("leaving"):
            return None
        return LivingWorker(
            lease.worker,
            lease.nodename,
            lease.direct_queue,
            slots=max(1, int(doing.get("slots") or 1)),
            held=max(len(look.claims), fetched if isinstance(fetched, int) else 0),
        )
