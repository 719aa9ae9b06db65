"""The ledger's door for those who publish and run tasks: one method per transition, named after its script."""

from __future__ import annotations

import json
from collections.abc import Sequence

from celery_reliable.ledger.caller import Answer, Caller
from celery_reliable.ledger.connect import Connector
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.workers import Workers
from celery_reliable.model import (
    Cause,
    Claim,
    DeadLetter,
    Due,
    HistoryEntry,
    Reason,
    Record,
    State,
    TaskRef,
)

__all__ = ["Ledger"]

_RECORD_FIELDS = (
    "state",
    "name",
    "epoch",
    "attempt",
    "losses",
    "max_losses",
    "owner",
    "token",
    "pid",
    "message",
    "published_ms",
    "claimed_ms",
    "sent_ms",
    "resends",
    "owed",
)
_LETTER_FIELDS = (
    "state",
    "name",
    "reason",
    "exception",
    "traceback",
    "attempt",
    "losses",
    "published_ms",
    "buried_ms",
    "message",
    "history",
    "cause",
    "owed",
)


class Ledger:
    """What is known of every task and worker of one namespace; knows no Celery.

    Each method is one atomic step on the server and may be repeated.  All raise LedgerUnavailable and LedgerRefused.
    The ledger promises nothing beyond its Redis: a task is as durable as that server.
    """

    def __init__(
        self,
        connector: Connector,
        namespace: str,
        *,
        patience_seconds: float = 10.0,
        reply_timeout_seconds: float = 5.0,
        single: bool = False,
    ) -> None:
        self.connector = connector
        self.namespace = namespace
        self.keys = Keys(connector.key_prefix + namespace)
        client = connector.client(reply_timeout_seconds=reply_timeout_seconds, single=single)
        self._caller = Caller(client, connector.shown, patience_seconds)
        #: Leases, deaths and passes.
        self.workers = Workers(self._caller, self.keys)
        #: The generation of the last record; learned from the first refusal.
        self.generation = "1"

    def close(self) -> None:
        """Close the connections."""
        self._caller.client.close()
        self._caller.client.connection_pool.disconnect()

    def server_facts(self) -> dict[str, str]:
        """Return INFO and the CONFIG values that the guard looks at; what the server hides is missing."""
        return self._caller.read("server facts", _server_facts)

    # -- the publisher's transitions

    def record(
        self,
        task: TaskRef,
        *,
        epoch: str,
        state: State,
        due_in_ms: int,
        message: str,
        claim: Claim | None = None,
    ) -> Answer:
        """Note a publication before its message is sent; *claim* is the running attempt that publishes its own id."""
        return self._caller.call(
            "record",
            [
                self.keys.record(task.id),
                self.keys.due,
                self.keys.meta,
                self.keys.claims(claim.worker if claim else ""),
            ],
            [
                task.id,
                epoch,
                self.generation,
                state.value,
                due_in_ms,
                message,
                task.name,
                claim.attempt if claim else "",
                _optional(task.max_losses),
            ],
        )

    def withdraw(
        self, task_id: str, epoch: str, *, patience_seconds: float | None = None
    ) -> Answer:
        """Take back a publication whose send raised."""
        return self._caller.call(
            "withdraw",
            [self.keys.record(task_id), self.keys.due],
            [task_id, epoch],
            patience_seconds,
        )

    # -- the transitions of the process that runs the task

    def claim(
        self,
        task: TaskRef,
        *,
        epoch: str,
        generation: str,
        worker: str,
        token: str,
        pid: int,
        message: str = "",
        patience_seconds: float | None = None,
    ) -> Answer:
        """Begin an attempt, or hear why not."""
        return self._caller.call(
            "claim",
            [
                self.keys.record(task.id),
                self.keys.due,
                self.keys.meta,
                self.keys.worker(worker),
                self.keys.claims(worker),
            ],
            [
                task.id,
                epoch,
                generation,
                worker,
                token,
                pid,
                task.time_to_run_ms,
                task.name,
                _optional(task.max_losses),
                message,
            ],
            patience_seconds,
        )

    def settle(self, claim: Claim, *, patience_seconds: float | None = None) -> Answer:
        """Report that the attempt has an outcome which Celery has stored."""
        return self._caller.call(
            "settle",
            [self.keys.record(claim.task_id), self.keys.due, self.keys.claims(claim.worker)],
            [claim.task_id, claim.attempt],
            patience_seconds,
        )

    def replace(
        self, claim: Claim, *, due_in_ms: int, patience_seconds: float | None = None
    ) -> Answer:
        """Keep the record waiting for its own id, which a canvas will publish last."""
        return self._caller.call(
            "replace",
            [self.keys.record(claim.task_id), self.keys.due, self.keys.claims(claim.worker)],
            [claim.task_id, claim.attempt, due_in_ms],
            patience_seconds,
        )

    # -- how attempts end otherwise

    def lose(
        self,
        claim: Claim,
        cause: Cause,
        *,
        max_losses: int,
        due_in_ms: int,
        is_taken: bool = False,
        patience_seconds: float | None = None,
    ) -> Answer:
        """Count a loss: back to queued, or buried when the budget is spent."""
        return self._caller.call(
            "lose",
            [
                self.keys.record(claim.task_id),
                self.keys.due,
                self.keys.claims(claim.worker),
                self.keys.taken(claim.worker),
                self.keys.dead,
            ],
            [
                claim.task_id,
                claim.attempt,
                cause.value,
                max_losses,
                due_in_ms,
                claim.token if is_taken else "",
            ],
            patience_seconds,
        )

    def release(
        self, claim: Claim, *, due_in_ms: int, patience_seconds: float | None = None
    ) -> Answer:
        """End an attempt whose worker is stopped on purpose; no loss is counted."""
        return self._caller.call(
            "release",
            [self.keys.record(claim.task_id), self.keys.due, self.keys.claims(claim.worker)],
            [claim.task_id, claim.attempt, due_in_ms],
            patience_seconds,
        )

    def cancel(
        self, task_id: str, *, epoch: str = "", patience_seconds: float | None = None
    ) -> Answer:
        """Call off a task that nobody runs."""
        return self._caller.call(
            "cancel", [self.keys.record(task_id), self.keys.due], [task_id, epoch], patience_seconds
        )

    # -- dead letters

    def bury(
        self,
        claim: Claim,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        patience_seconds: float | None = None,
    ) -> Answer:
        """End an attempt as a dead letter."""
        return self._bury(
            claim.task_id,
            claim.attempt,
            claim.worker,
            reason,
            exception,
            traceback,
            "",
            "",
            patience_seconds,
        )

    def bury_message(
        self,
        task_id: str,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        message: str,
        name: str,
        patience_seconds: float | None = None,
    ) -> Answer:
        """Dead-letter a message that no attempt was made of."""
        return self._bury(
            task_id, "", "", reason, exception, traceback, message, name, patience_seconds
        )

    def _bury(
        self,
        task_id: str,
        attempt: int | str,
        worker: str,
        reason: Reason,
        exception: str,
        traceback: str,
        message: str,
        name: str,
        patience_seconds: float | None,
    ) -> Answer:
        return self._caller.call(
            "bury",
            [self.keys.record(task_id), self.keys.due, self.keys.claims(worker), self.keys.dead],
            [task_id, attempt, reason.value, exception, traceback, message, name],
            patience_seconds,
        )

    def replay(self, task_id: str, *, epoch: str, message: str, due_in_ms: int) -> Answer:
        """Return a dead letter to queued, with *message*, its counters at zero."""
        return self._caller.call(
            "replay",
            [self.keys.record(task_id), self.keys.due, self.keys.dead, self.keys.meta],
            [task_id, epoch, self.generation, message, due_in_ms],
        )

    def discard(self, task_id: str, *, buried_ms: int | None = None) -> Answer:
        """Remove a dead letter for good; *buried_ms*: only the one that was seen."""
        return self._caller.call(
            "discard",
            [self.keys.record(task_id), self.keys.due, self.keys.dead],
            [task_id, _optional(buried_ms)],
        )

    def announced(self, task_id: str, buried_ms: int) -> Answer:
        """Note that what a burial owed Celery has been paid."""
        return self._caller.call(
            "announce", [self.keys.record(task_id), self.keys.due], [task_id, buried_ms]
        )

    # -- overdue records

    def due(self, limit: int) -> tuple[int, list[Due]]:
        """Return the server's time and at most *limit* records at which somebody must look, the oldest first."""
        answer = self._caller.call("due", [self.keys.due], [limit])
        values = [answer.text(i) for i in range(1, len(answer.values))]
        return int(answer.values[0]), [
            Due(*pair) for pair in zip(values[::2], values[1::2], strict=True)
        ]

    def resend(self, due: Due, *, due_in_ms: int) -> Answer:
        """Take the right to send an overdue task again, with its message."""
        return self._caller.call(
            "resend",
            [self.keys.record(due.task_id), self.keys.due],
            [due.task_id, due.due_ms, due_in_ms],
        )

    def postpone(self, due: Due, *, due_in_ms: int) -> Answer:
        """Look again later."""
        return self._caller.call(
            "postpone",
            [self.keys.record(due.task_id), self.keys.due],
            [due.task_id, due.due_ms, due_in_ms],
        )

    # -- reads

    def find(self, task_id: str, *, patience_seconds: float | None = None) -> Record | None:
        """Return the record of *task_id*; None when it has ended or was never recorded."""
        return self.find_all([task_id], patience_seconds=patience_seconds)[0]

    def find_all(
        self, task_ids: Sequence[str], *, patience_seconds: float | None = None
    ) -> list[Record | None]:
        """Return the records of *task_ids* in one round trip, None for those that are gone."""
        if not task_ids:
            return []
        keys = [self.keys.record(task_id) for task_id in task_ids]
        rows = self._caller.read(
            "find", lambda client: _hmget_all(client, keys, _RECORD_FIELDS), patience_seconds
        )
        return [_record(task_id, row) for task_id, row in zip(task_ids, rows, strict=True)]

    def dead_letter(self, task_id: str) -> DeadLetter | None:
        """Return one dead letter, or None."""
        return self.dead_letters([task_id])[0]

    def dead_letters(self, task_ids: Sequence[str]) -> list[DeadLetter | None]:
        """Return the dead letters of *task_ids* in one round trip, None for those that are none."""
        if not task_ids:
            return []
        keys = [self.keys.record(task_id) for task_id in task_ids]
        rows = self._caller.read(
            "dead letters", lambda client: _hmget_all(client, keys, _LETTER_FIELDS)
        )
        return [_letter(task_id, row) for task_id, row in zip(task_ids, rows, strict=True)]

    def dead_ids(
        self, *, start: int = 0, limit: int = 100, before_ms: int | None = None
    ) -> list[str]:
        """Return ids of dead letters, the latest first; with *before_ms* those buried up to then, the oldest first."""
        key = self.keys.dead

        def read(client: object) -> list[bytes]:
            assert hasattr(client, "zrange")
            if before_ms is None:
                found = client.zrange(key, start, start + limit - 1, desc=True)
            else:
                found = client.zrange(key, 0, before_ms, byscore=True, offset=start, num=limit)
            return list(found)

        return [item.decode() for item in self._caller.read("dead ids", read)]

    def oldest_dead_ids(self, limit: int) -> list[str]:
        """Return ids of the *limit* dead letters that were buried first."""
        found = self._caller.read(
            "dead ids", lambda client: client.zrange(self.keys.dead, 0, limit - 1)
        )
        return [item.decode() for item in found]

    def count_dead(self) -> int:
        """Return how many dead letters there are."""
        return int(self._caller.read("count dead", lambda client: client.zcard(self.keys.dead)))


def _optional(value: int | None) -> int | str:
    return "" if value is None else value


def _hmget_all(
    client: object, keys: list[str], fields: tuple[str, ...]
) -> list[list[bytes | None]]:
    assert hasattr(client, "pipeline")
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.hmget(key, fields)
    rows: list[list[bytes | None]] = pipe.execute()
    return rows


def _texts(row: Sequence[bytes | None], fields: tuple[str, ...]) -> dict[str, str]:
    return {
        name: value.decode("utf-8", "replace")
        for name, value in zip(fields, row, strict=True)
        if value is not None
    }


def _record(task_id: str, row: Sequence[bytes | None]) -> Record | None:
    got = _texts(row, _RECORD_FIELDS)
    if "state" not in got:
        return None
    return Record(
        task_id=task_id,
        state=State(got["state"]),
        name=got.get("name", ""),
        epoch=got.get("epoch", ""),
        attempt=int(got.get("attempt", 0)),
        losses=int(got.get("losses", 0)),
        max_losses=int(got["max_losses"]) if "max_losses" in got else None,
        owner=got.get("owner", ""),
        token=got.get("token", ""),
        pid=int(got.get("pid", 0)),
        message=got.get("message", ""),
        published_ms=int(got.get("published_ms", 0)),
        claimed_ms=int(got.get("claimed_ms", 0)),
        sent_ms=int(got.get("sent_ms", 0)),
        resends=int(got.get("resends", 0)),
        is_owed="owed" in got,
    )


def _letter(task_id: str, row: Sequence[bytes | None]) -> DeadLetter | None:
    got = _texts(row, _LETTER_FIELDS)
    if got.get("state") != State.DEAD.value:
        return None
    history = json.loads(got.get("history", "[]"))
    return DeadLetter(
        task_id=task_id,
        name=got.get("name", ""),
        reason=Reason(got["reason"]),
        exception=got.get("exception", "") or got.get("cause", ""),
        traceback=got.get("traceback", ""),
        attempts=int(got.get("attempt", 0)),
        losses=int(got.get("losses", 0)),
        published_ms=int(got.get("published_ms", 0)),
        buried_ms=int(got["buried_ms"]),
        message=got.get("message", ""),
        history=tuple(HistoryEntry(**entry) for entry in history),
        is_owed="owed" in got,
    )


def _server_facts(client: object) -> dict[str, str]:
    import redis

    assert isinstance(client, redis.Redis)
    facts = {name: str(value) for name, value in client.info().items()}
    for name in ("maxmemory", "maxmemory-policy", "appendonly", "save"):
        try:
            facts.update({key: str(value) for key, value in client.config_get(name).items()})
        except redis.ResponseError:
            continue
    return facts
