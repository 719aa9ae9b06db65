"""Transitions of tasks that only some workers may run, and of those workers' own queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from celery_reliable.ledger.answers import (
    DivertAnswer,
    MoveAnswer,
    ParkAnswer,
    UnlistAnswer,
    WakeAnswer,
)
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.replies import text_of
from celery_reliable.ledger.transitions import Step, Transition
from celery_reliable.model import Due, Record, State

__all__ = ["NamedTasks"]

_DIVERT: Transition[DivertAnswer] = Transition("divert", DivertAnswer)
_PARK: Transition[ParkAnswer] = Transition("park", ParkAnswer)
_WAKE: Transition[WakeAnswer] = Transition("wake", WakeAnswer)
_MOVE: Transition[MoveAnswer] = Transition("move", MoveAnswer)
_UNLIST: Transition[UnlistAnswer] = Transition("unlist", UnlistAnswer)

_READ_AT_ONCE = 500


class NamedTasks:
    """Tasks that wait for workers, and the queues that one worker each consumes.  Raises what
    `Ledger` raises.
    """

    def __init__(self, caller: Caller, keys: Keys) -> None:
        self._caller = caller
        self._keys = keys

    def divert(
        self, task_id: str, epoch: str, *, patience_seconds: float | None = None
    ) -> DivertAnswer:
        """Have a queued task sent again at once, as a message of it is where nobody may run it."""
        return self._caller.call(
            _DIVERT,
            [self._keys.record(task_id), self._keys.due],
            [task_id, epoch],
            patience_seconds,
        )

    def divert_all(self, messages: Sequence[tuple[str, str]]) -> list[DivertAnswer]:
        """Do the same for many: the id and the epoch of each message.  Returns the answers."""
        return self._caller.run_all(
            [
                Step(_DIVERT, [self._keys.record(task_id), self._keys.due], [task_id, epoch])
                for task_id, epoch in messages
            ]
        )

    def park(self, due: Due, named: str, *, due_in_ms: int) -> ParkAnswer:
        """Let a task wait in the ledger for a worker that may run it.

        *named*: which may, as text.  It is looked at again in *due_in_ms*, or when it is woken.
        """
        return self._caller.call(
            _PARK,
            [self._keys.record(due.task_id), self._keys.due, self._keys.unplaced],
            [due.task_id, due.due_ms, due_in_ms, named],
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
        keys, is_running = self._keys, record.state is State.RUNNING
        return self._caller.call(
            _MOVE,
            [
                keys.record(record.task_id),
                keys.due,
                keys.claims(record.owner) if is_stopped else keys.none,
                keys.taken(record.owner) if is_stopped else keys.none,
            ],
            [
                record.task_id,
                record.next_epoch or record.epoch,
                epoch,
                message,
                named,
                record.attempt if is_running else "",
                record.token if is_running else "",
                "1" if is_stopped else "",
                due_in_ms,
                by,
            ],
        )

    def wake(self, task_id: str, *, is_there: bool = True) -> WakeAnswer:
        """Let a task that waits for a worker be due now; take one off the index that does not.

        *is_there*: without it only the latter.
        """
        keys = self._keys
        return self._caller.call(
            _WAKE,
            [keys.record(task_id), keys.due, keys.unplaced],
            [task_id, "1" if is_there else ""],
        )

    def wake_all(self, task_ids: Sequence[str], *, is_there: bool = True) -> None:
        """Do the same for many."""
        keys, there = self._keys, "1" if is_there else ""
        self._caller.call_all(
            _WAKE,
            [
                ([keys.record(task_id), keys.due, keys.unplaced], [task_id, there])
                for task_id in task_ids
            ],
        )

    def unlist(self, queue: str, registered_ms: str) -> UnlistAnswer:
        """Forget the own queue of workers that are gone, unless one has registered since."""
        return self._caller.call(_UNLIST, [self._keys.direct], [queue, registered_ms])

    def waiting(self) -> int:
        """Return how many tasks wait for a worker; of some that do not any more it may not be known
        yet.
        """
        found = self._caller.read("waiting", lambda client: client.hlen(self._keys.unplaced))
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
                    self._keys.unplaced, at, count=at_once
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
            lambda client: client.zrange(self._keys.direct, 0, -1, withscores=True),
            patience_seconds,
        )
        return [(text_of(queue), f"{score:.0f}") for queue, score in found]
