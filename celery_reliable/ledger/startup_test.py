"""Tries a task's whole life on the server when a worker starts, before a real task can fail."""

from __future__ import annotations

import os
import re
import secrets
from typing import Any

from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger.answers.tasks import Claimed, Gone, Settled
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.store import Ledger
from celery_reliable.ledger.transitions import A, Step
from celery_reliable.model import Claim, ClaimRequest, State, TaskRef

__all__ = ["self_test"]

#: A full server is no reason not to start: it may have room again, and callers wait for that.
_FULL = re.compile(r"\bOOM\b|'maxmemory'")


class _Noting(Caller):
    """Keeps the steps instead of sending them."""

    steps: list[Step[Any]]

    def run(
        self,
        step: Step[A],
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> A:
        self.steps.append(step)
        # The answer is never looked at.
        answer: Any = Gone()
        return answer  # type: ignore[no-any-return]


class _Written(Ledger):
    """A ledger that keeps its steps and does not take them."""

    def __init__(self, connector: Connector, namespace: str) -> None:
        super().__init__(connector, namespace)
        noting = _Noting(self._caller.client, self._caller.shown, 0)
        self.steps = noting.steps = []
        self._caller = self.workers._caller = noting


def self_test(ledger: Ledger) -> None:
    """Record, withdraw, claim and settle a task with a name that nobody else has.

    All of it is one transaction: nobody sees it, and it leaves nothing.  Raises LedgerRefused or
    LedgerForbidden if the server does not let it, and LedgerUnavailable if it does not answer.  A
    full server raises nothing.
    """
    name = f"self-test-{secrets.token_hex(8)}"
    task, claim = TaskRef(name, "", None, 0), Claim(name, 1, name, name)
    written = _Written(ledger.connector, ledger.namespace)
    written.record(task, epoch=name, state=State.QUEUED, due_in_ms=3_600_000, message="")
    written.withdraw(name, name)
    written.workers.register(name, lease_ms=3_600_000, client_id=0, facts={})
    request = ClaimRequest(task, "", "", name, name, os.getpid())
    written.claim(request, message="none")
    written.settle(claim)
    written.workers.deregister(name, in_unacked=0)
    written.close()

    def run(client: Any) -> list[Any]:
        with client.pipeline(transaction=True) as pipe:
            for step in written.steps:
                # EVALSHA would need each script to be loaded before.
                pipe.eval(step.code.text, *step.call[1:])
            return list(pipe.execute())

    try:
        answers = [answer[0].decode() for answer in ledger.ask("self test", run)]
    except LedgerRefused as exc:
        if _FULL.search(str(exc.reply)):
            return
        raise
    if answers[3:5] != [Claimed.word, Settled.word]:
        raise LedgerRefused(
            f"The ledger's Redis at {ledger.connector.shown} does not keep what it is told: a task "
            f"was to be claimed and settled, and that was answered with {answers[3:5]}.",
            operation="self test",
        )
