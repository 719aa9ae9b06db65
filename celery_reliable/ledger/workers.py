"""Transitions of workers: their leases, their deaths and what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger.answers import (
    AcknowledgeAnswer,
    DeclareAnswer,
    DeregisterAnswer,
    HeartbeatAnswer,
    OpenAnswer,
    OpenedAnswer,
    RegisterAnswer,
)
from celery_reliable.ledger.answers.workers import DeclaredDead, Deregistered, Newer, Registered
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.formats import FORMAT, newer
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.lock_release import call_freeing_lock
from celery_reliable.ledger.transitions import Transition
from celery_reliable.ledger.worker_reads import WorkerReads
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


class Workers(WorkerReads):
    """Leases of workers, and what each worker holds.  Raises what `Ledger` raises."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        super().__init__(caller, keys)
        #: Numbers what this process tells of its worker, so that a late copy of a call is known.
        self._numbers = count(1)

    def register(
        self, worker: str, *, lease_ms: int, client_id: int, facts: Mapping[str, Any]
    ) -> Registered | DeclaredDead:
        """Give a new worker a lease of *lease_ms*.

        Raises LedgerRefused also in a namespace of a newer format.
        """
        answer = self._caller.call(
            _REGISTER,
            [
                self._keys.worker(worker),
                self._keys.workers,
                self._keys.meta,
                self._keys.direct,
            ],
            [
                worker,
                lease_ms,
                client_id,
                json.dumps(dict(facts)),
                next(self._numbers),
                FORMAT,
                str(facts.get("direct") or ""),
            ],
        )
        if isinstance(answer, Newer):
            raise newer(answer.format, self._caller.shown, self._keys.meta, "register")
        return answer

    def heartbeat(
        self,
        worker: str,
        *,
        lease_ms: int,
        client_id: int,
        doing: str = "",
        counted: Mapping[str, int] | None = None,
    ) -> HeartbeatAnswer:
        """Renew the lease, and return which claims were taken or are to be stopped, and the version
        of the orders.  It is sent once.

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
                self._keys.minutes,
                self._keys.orders,
                self._keys.stops(worker),
                self._keys.claims(worker),
                self._keys.meta,
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
        expected_ms: int | str = "",
    ) -> DeclareAnswer:
        """Declare a worker dead, and decide which of its claims is charged with that.

        Nothing is done if the worker was heard of since *lease* was read, or if the server's time
        is not about *expected_ms*.  *witness_ms*: for how long its connection must be gone, 0 if
        connections are not looked at.
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
                self._keys.stops(worker),
            ],
            [worker, in_unacked, TAKEN_MS],
        )
        return isinstance(answer, Deregistered)
