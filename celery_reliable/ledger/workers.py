"""Transitions of workers: their leases, their deaths and what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from celery_reliable.compat.redis import kept_connection, socket_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import rows
from celery_reliable.ledger.answers import (
    AcknowledgeAnswer,
    DeclareAnswer,
    DeregisterAnswer,
    HeartbeatAnswer,
    OpenAnswer,
    OpenedAnswer,
    RegisterAnswer,
)
from celery_reliable.ledger.answers.workers import Deregistered
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.lock_release import call_freeing_lock
from celery_reliable.ledger.transitions import Transition
from celery_reliable.model import Claim

__all__ = ["Workers"]

#: For so long a worker that was away is told which claims were taken from it.
TAKEN_MS = 60 * 60 * 1000
#: When a task is sent again that its worker may not run now; doubled up to four times.
ALONE_MS = 1000
#: A task that kills its worker at once has done so after this time.
_BEGUN_MS = 500

_REGISTER: Transition[RegisterAnswer] = Transition("register", RegisterAnswer)
_HEARTBEAT: Transition[HeartbeatAnswer] = Transition("heartbeat", HeartbeatAnswer)
_ACKNOWLEDGE: Transition[AcknowledgeAnswer] = Transition(
    "acknowledge", AcknowledgeAnswer, frees=True
)
_DECLARE: Transition[DeclareAnswer] = Transition("declare", DeclareAnswer)
_OPEN: Transition[OpenAnswer] = Transition("open", OpenAnswer)
_OPENED: Transition[OpenedAnswer] = Transition("opened", OpenedAnswer)
_DEREGISTER: Transition[DeregisterAnswer] = Transition("deregister", DeregisterAnswer)


class Workers:
    """Leases of workers, and what each worker holds.  Raises what `Ledger` raises."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        self._caller = caller
        self._keys = keys
        #: Numbers what this process tells of its worker, so that a late copy of a call is known.
        self._numbers = count(1)

    def register(
        self, worker: str, *, lease_ms: int, client_id: int, facts: Mapping[str, Any]
    ) -> RegisterAnswer:
        """Give a new worker a lease of *lease_ms*."""
        return self._caller.call(
            _REGISTER,
            [self._keys.worker(worker), self._keys.workers],
            [worker, lease_ms, client_id, json.dumps(dict(facts)), next(self._numbers)],
        )

    def heartbeat(
        self,
        worker: str,
        *,
        lease_ms: int,
        client_id: int,
        doing: str = "",
        counted: Mapping[str, int] | None = None,
    ) -> HeartbeatAnswer:
        """Renew the lease, and return which claims were taken.  It is sent once.

        For operators: *doing* is what the worker does just now, as JSON; *counted* what it has
        counted since it registered under this name.  Totals that have not grown may be left out.
        """
        pairs = [one for pair in (counted or {}).items() for one in pair]
        return self._caller.call(
            _HEARTBEAT,
            [
                self._keys.worker(worker),
                self._keys.workers,
                self._keys.taken(worker),
                self._keys.hours,
            ],
            [worker, lease_ms, client_id, next(self._numbers), doing, *pairs],
            0,
        )

    def acknowledge(self, claim: Claim) -> AcknowledgeAnswer:
        """Note that the worker has stopped a claim that was taken from it.

        If the task is a dead letter, its object is freed now.
        """
        return call_freeing_lock(
            self._caller,
            self._keys,
            _ACKNOWLEDGE,
            [
                self._keys.taken(claim.worker),
                self._keys.record(claim.task_id),
                self._keys.due,
            ],
            [claim.task_id, f"{claim.attempt} {claim.token}"],
        )

    def declare(
        self,
        lease: WorkerLease,
        cause: str,
        *,
        witness_ms: int,
        lease_ms: int = 0,
        expected_ms: int | str = "",
    ) -> DeclareAnswer:
        """Declare a worker dead, and decide which of its claims is charged with that.

        Nothing is done if the worker was heard of since *lease* was read, or if the server's time
        is not about *expected_ms*.  *witness_ms*: for how long its connection must be gone, 0 if
        connections are not looked at.  *lease_ms*: how long a lease is.
        """
        return self._caller.call(
            _DECLARE,
            [
                self._keys.worker(lease.worker),
                self._keys.workers,
                self._keys.meta,
                self._keys.claims(lease.worker),
            ],
            [
                lease.worker,
                cause,
                lease.renewals,
                lease.client_id,
                witness_ms,
                lease_ms,
                expected_ms,
            ],
        )

    def open(
        self,
        worker: str,
        delivery: str,
        task_id: str,
        epoch: str,
        *,
        max_losses: int,
        patience_seconds: float,
    ) -> OpenAnswer:
        """Note that *worker* is about to open a message that came back from a dead worker.

        The answer says if it must not.  Waits *patience_seconds* for the server.
        """
        return self._caller.call(
            _OPEN,
            [
                self._keys.record(task_id),
                self._keys.due,
                self._keys.worker(worker),
                self._keys.claims(worker),
            ],
            [task_id, epoch, delivery, _BEGUN_MS, ALONE_MS, max_losses],
            patience_seconds,
        )

    def opened(self, worker: str, delivery: str, *, patience_seconds: float) -> OpenedAnswer:
        """Note that the worker lives after it has opened a message."""
        return self._caller.call(_OPENED, [self._keys.worker(worker)], [delivery], patience_seconds)

    def deregister(self, worker: str, *, in_unacked: int) -> bool:
        """Forget a worker that holds nothing; False when it still holds something."""
        answer = self._caller.call(
            _DEREGISTER,
            [
                self._keys.worker(worker),
                self._keys.workers,
                self._keys.claims(worker),
                self._keys.taken(worker),
            ],
            [worker, in_unacked, TAKEN_MS],
        )
        return isinstance(answer, Deregistered)

    def leases(self) -> list[WorkerLease]:
        """Return the lease of each worker, also of dead ones that hold something."""

        def read(client: Any) -> tuple[list[tuple[bytes, float]], list[list[bytes | None]]]:
            found = client.zrange(self._keys.workers, 0, -1, withscores=True)
            pipe = client.pipeline(transaction=False)
            for name, _ in found:
                pipe.hmget(self._keys.worker(name.decode()), rows.LEASE_FIELDS)
            return found, pipe.execute() if found else []

        found, read_rows = self._caller.read("leases", read)
        return [
            rows.lease(name.decode(), int(until_ms), row)
            for (name, until_ms), row in zip(found, read_rows, strict=True)
        ]

    def connected(self, client_ids: Iterable[str]) -> set[str] | None:
        """Return which of *client_ids* are connected to the server now; None when the server
        does not tell.
        """
        wanted = [i for i in client_ids if i.isdigit() and i != "0"]
        if not wanted:
            return set()

        def read(client: Any) -> set[str] | None:
            import redis

            try:
                rows = client.client_list(client_id=wanted)
            except redis.ResponseError:
                return None
            return {str(row["id"]) for row in rows}

        return self._caller.read("client list", read)

    def claims(self, worker: str) -> dict[str, tuple[Claim, int]]:
        """Return what *worker* runs: task id -> its claim and the pid of the process."""
        raw = self._caller.read("claims", lambda client: client.hgetall(self._keys.claims(worker)))
        return dict(_claim(worker, key.decode(), value.decode()) for key, value in raw.items())

    @property
    def connection(self) -> Any:
        """The connection of a client that was made with `single`."""
        return kept_connection(self._caller.client)

    def client_id(self, connection: Any, known_socket: Any, known_id: int) -> tuple[int, Any]:
        """Connect if necessary; return the connection's id at the server and its socket.

        Asks the server only when the socket is another one than *known_socket*.  0 when the server
        does not tell.
        """

        def ask(client: Any) -> int:
            import redis

            if socket_of(connection) is None:
                connection.connect()
            if socket_of(connection) is known_socket:
                return known_id
            try:
                return int(client.client_id())
            except redis.ResponseError:
                return 0

        found = self._caller.read("client id", ask, 0)
        return found, socket_of(connection)

    def time_ms(self) -> int:
        """Return the server's time in ms."""
        seconds, micros = self._caller.read("time", lambda client: client.time())
        return int(seconds * 1000 + micros // 1000)


def _claim(worker: str, task_id: str, text: str) -> tuple[str, tuple[Claim, int]]:
    """Read what is noted of a task that *worker* runs."""
    attempt, pid, token = text.split(" ", 2)
    return task_id, (Claim(task_id, int(attempt), worker, token), int(pid))
