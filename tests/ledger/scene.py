"""The steps by which tests bring tasks and workers about, and what the ledger then holds.

The tests beside this file speak to the ledger through its methods. Only this one looks at how it
stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import redis

from celery_reliable.leases import Verdict, WorkerLease
from celery_reliable.ledger import Ledger, answers, connect
from celery_reliable.ledger.answers import Answer
from celery_reliable.model import (
    Cause,
    Claim,
    ClaimRequest,
    DeadLetter,
    Due,
    Reason,
    Record,
    Room,
    State,
    TaskRef,
)
from celery_reliable.orders import Order, OrderKind
from tests.ledger.driver.indexes import LOOK
from tests.support.redis_server import RedisServer, content_of

LEASE_MS = 60_000
LOOK_MS = 60_000
LONG_MS = 600_000
MAX_LOSSES = 3
ABSENT = "absent"


def open_ledger(
    url: str,
    namespace: str,
    *,
    transport_options: Mapping[str, str] | None = None,
    reply_timeout_seconds: float = 5.0,
) -> Ledger:
    return Ledger(
        connect(url, transport_options=transport_options),
        namespace,
        patience_seconds=10.0,
        reply_timeout_seconds=reply_timeout_seconds,
    )


@dataclass(frozen=True)
class Published:
    """A message as it lies in a queue."""

    task: TaskRef
    epoch: str
    generation: str


class Locks:
    """The objects of which one task has each at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def take(self, object_key: str, claim: Claim) -> str | None:
        """Return None to who gets it, or who has it; empty to an attempt that is not current."""
        answer = self._ledger.take_place(Room(object_key, 1), claim, due_in_ms=LOOK_MS)
        if isinstance(answer, answers.Placed):
            return None
        return answer.before if isinstance(answer, answers.Full) else ""

    def free(self, object_key: str, claim: Claim) -> bool:
        """Have an attempt free its object."""
        return isinstance(self._ledger.free_place(object_key, claim), answers.Unlocked)


class Scene:
    """One ledger, the objects' locks, and a plain client of its server."""

    def __init__(self, ledger: Ledger, client: redis.Redis) -> None:
        self.ledger = ledger
        self.workers = ledger.workers
        self.locks = Locks(ledger)
        # Untyped, since redis-py types most replies as all that they can be.
        self.client: Any = client
        self._numbers = count(1)

    # Workers.

    def start_worker(self, worker: str, *, lease_ms: int = LEASE_MS, client_id: int = 0) -> None:
        answer = self.workers.register(
            worker, lease_ms=lease_ms, client_id=client_id, facts={"nodename": worker}
        )
        assert isinstance(answer, answers.Registered)

    def lease(self, worker: str) -> WorkerLease:
        return next(lease for lease in self.workers.leases() if lease.worker == worker)

    def declare(
        self, cause: str = "lapsed", lease: WorkerLease | None = None, **how: Any
    ) -> type[Answer]:
        """Have a worker declared dead, "me" as it is now or another as it was seen."""
        lease = lease or self.lease("me")
        return type(self.workers.declare(lease, cause, **{"witness_ms": 0, **how}))

    def kill_worker(self, worker: str) -> None:
        """Have a worker declared dead whose lease is made to run out now."""
        self.client.zadd(self.ledger.keys.workers, {worker: 0})
        assert self.declare("lapsed", self.lease(worker)) is answers.Declared

    def beat(self, worker: str = "me", *, client_id: int = 0) -> Any:
        return self.workers.heartbeat(worker, lease_ms=LEASE_MS, client_id=client_id)

    def begin_pass(self, nonce: str = "mine", **how: Any) -> Any:
        """Begin a pass of the sweeper: at any time, and after no interruption."""
        brief = {"interval_ms": 0, "ttl_ms": LONG_MS, "interruption_ms": LONG_MS}
        return self.ledger.passes.begin(nonce, lease_ms=LEASE_MS, **{**brief, **how})

    # Tasks.

    def publish(
        self,
        task_id: str = "task",
        *,
        state: State = State.QUEUED,
        due_in_ms: int = LOOK_MS,
        claim: Claim | None = None,
        max_losses: int | None = None,
        time_to_run_ms: int = 0,
        queue: str = "",
        unique: str | None = None,
    ) -> Published:
        """Record a publication; learn the generation as the publisher does."""
        task = TaskRef(task_id, "app.work", max_losses, time_to_run_ms)
        for _ in range(9):
            epoch = self.ledger.senders.new_epoch(claim.attempt if claim else 0)
            how: dict[str, Any] = {"state": state, "due_in_ms": due_in_ms, "claim": claim}
            answer = self.record(task, epoch, queue=queue, unique=unique, **how)
            if not isinstance(answer, answers.Unknown):
                break
        assert isinstance(answer, answers.Recorded)
        self.ledger.senders.answered(epoch)
        return Published(task, epoch, self.ledger.generation)

    def call(self, task_id: str, unique: str | None = "object") -> str | None:
        """Publish a unique task as a call does; return None if that is recorded, or else who has
        its object.
        """
        how: dict[str, Any] = {"unique": unique}
        while True:
            epoch = self.ledger.senders.new_epoch(0)
            answer = self.record(TaskRef(task_id, "app.work"), epoch, **how)
            self.ledger.senders.answered(epoch)
            match answer:
                case answers.KeptFor(holder) | answers.LockedBy(holder):
                    return holder
                case answers.Concluding() if "is_waited" not in how:
                    how["is_waited"] = True
                case answers.StillStopping():
                    how = {}
                case _:
                    assert isinstance(answer, answers.Recorded)
                    return None

    def record(
        self,
        task: TaskRef,
        epoch: str,
        *,
        state: State = State.QUEUED,
        due_in_ms: int = LOOK_MS,
        unique: str | None = None,
        is_waited: bool = False,
        **how: Any,
    ) -> Answer:
        """Record a publication; of a *unique* task, whose object that is, as its calls do."""
        if unique is not None:
            how.update(room=Room(unique, 1), unique="2" if is_waited else "1")
        for _ in range(9):
            answer = self.ledger.record(
                task, epoch=epoch, state=state, due_in_ms=due_in_ms, message=f"sent as {epoch}",
                **how,
            )  # fmt: skip
            if not isinstance(answer, answers.OtherGeneration):
                return answer
            self.ledger.generation = answer.current
        raise AssertionError("each time of another generation")

    def replay(
        self, task_id: str = "task", epoch: str = "1-replay", *, due_in_ms: int = LOOK_MS
    ) -> Answer:
        """Queue a dead letter again."""
        return self.ledger.replay(
            TaskRef(task_id, "app.work"), epoch=epoch, message="replayed", due_in_ms=due_in_ms
        )

    def foreign(self, task_id: str = "task") -> Published:
        """A message from somebody without the package."""
        return Published(TaskRef(task_id, "app.work"), epoch="", generation="")

    def strike(self) -> str:
        """Return the id of a strike on the task, given now if it is not there."""
        found = self.ledger.orders.read().of_task("app.work")
        given = found[0] if found else self.order()
        return given.id

    def order(
        self, kind: OrderKind = OrderKind.STRIKE, target: str = "app.work", *, for_ms: int = 0
    ) -> Order:
        return self.ledger.orders.give(kind, target, by="ann", why="it is broken", for_ms=for_ms)

    def ask(
        self,
        message: Published,
        worker: str = "me",
        *,
        token: str = "",
        content: str = "",
        strikes: tuple[str, ...] = (),
        queue: str = "",
    ) -> Answer:
        """Ask for a claim; each time as a new delivery unless `token` says which."""
        request = ClaimRequest(
            message.task, epoch=message.epoch, generation=message.generation, worker=worker,
            token=token or f"delivery {next(self._numbers)}", pid=1000, strikes=strikes,
            list_key=queue,
        )  # fmt: skip
        return self.ledger.claim(request, message=content)

    def claim(self, message: Published, worker: str = "me", *, token: str = "") -> Claim:
        """Claim an attempt that must be had."""
        token = token or f"delivery {next(self._numbers)}"
        answer = self.ask(message, worker, token=token, content="as delivered")
        assert isinstance(answer, answers.Claimed), answer
        return Claim(message.task.id, answer.attempt, worker, token, answer.losses)

    def lose(
        self,
        claim: Claim,
        cause: Cause = Cause.CHILD_LOST,
        *,
        max_losses: int = MAX_LOSSES,
        is_taken: bool = False,
        is_unsent: bool = False,
        verdict: Verdict | None = None,
    ) -> Answer:
        return self.ledger.lose(
            claim, cause, max_losses=max_losses, due_in_ms=LOOK_MS, is_taken=is_taken,
            is_unsent=is_unsent, verdict=verdict,
        )  # fmt: skip

    def take(self, claim: Claim, *, max_losses: int = MAX_LOSSES) -> Answer:
        """Lose an attempt as stuck, while its worker lives."""
        return self.lose(claim, Cause.STUCK, max_losses=max_losses, is_taken=True)

    def letter(self, task_id: str = "task") -> DeadLetter:
        found = self.ledger.dead_letter(task_id)
        assert found is not None
        return found

    def bury(self, claim: Claim, *, is_owed: bool = False) -> Answer:
        return self.ledger.bury(
            claim, Reason.FAILED, exception="ValueError: no", traceback="Traceback ...",
            is_owed=is_owed,
        )  # fmt: skip

    def bury_message(self, epoch: str, *, is_unproved: bool = False) -> Answer:
        """A message of "task" is delivered to a worker that cannot run it."""
        return self.ledger.bury_message(
            "task", Reason.UNPROCESSABLE, exception="KeyError", traceback="", message="raw",
            name="?", epoch=epoch, is_unproved=is_unproved,
        )  # fmt: skip

    def record_of(self, task_id: str = "task") -> Record:
        record = self.ledger.find(task_id)
        assert record is not None
        return record

    def resends(self, task_id: str = "task") -> int:
        """How often a task was sent again, as its record counts that."""
        found = self.client.hget(self.ledger.keys.record(task_id), "resends") or b"0"
        return 0 if found == b"unsent" else int(found)

    def state(self, task_id: str = "task") -> str:
        record = self.ledger.find(task_id)
        return ABSENT if record is None else record.state.value

    def seen_due(self, task_id: str = "task") -> Due:
        """What a sweeper sees when this task is due; "0" if nobody ever has to look."""
        score = self.client.zscore(self.ledger.keys.due, task_id)
        return Due(task_id, "0" if score is None else f"{score:.0f}")

    def overdue_ids(self) -> list[str]:
        """The tasks at which somebody must look by now, the oldest first."""
        return [due.task_id for due in self.ledger.due(1000)[1]]

    def forget_object(self, task_id: str = "task") -> None:
        """Remove from a record the note of its object, as a retry with another object does."""
        self.client.hdel(self.ledger.keys.record(task_id), "object")

    def noted(self) -> list[Callable[[], Any]]:
        """Note the calls of scripts from now on: each can be made again."""
        found: list[Callable[[], Any]] = []
        run = self.ledger._caller.run

        def noting(*args: Any, **options: Any) -> Any:
            found.append(lambda: run(*args, **options))
            return found[-1]()

        self.ledger._caller.run = noting  # type: ignore[method-assign]
        return found

    # What the server holds.

    def snapshot(self) -> dict[str, tuple[object, bool]]:
        """Every key of the database with its value and whether it expires; but for the time, which
        may go on, and the waker's bell, which falls silent by itself.
        """
        found, keys = content_of(self.client), self.ledger.keys
        return {key: kept for key, kept in found.items() if key not in (keys.clock, keys.bell)}

    def index_faults(self) -> list[str]:
        """Where the indexes say anything but what the records say."""
        prefix = self.ledger.keys.record("").removesuffix("task:")
        found: bytes = self.client.eval(LOOK, 0, prefix)
        return found.decode().partition("\n\n")[0].splitlines()


class RestartableScene(Scene):
    """A ledger on a server of this test's own, which may be stopped and started again."""

    def __init__(self, ledger: Ledger, server: RedisServer) -> None:
        super().__init__(ledger, server.client())
        self.server = server

    def restart(self) -> None:
        self.server.kill()
        self.server.start()


def attempt_zero(task_id: str = "task") -> Claim:
    """A claim that nobody was ever given."""
    return Claim(task_id, 0, "me", "no such delivery")
