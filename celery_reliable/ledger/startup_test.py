"""A task's whole life tried on a server, as a worker starts: better told then than at its end."""

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

#: What a server's memory refuses passes, and is waited for by whoever meets it.
_FULL = re.compile(r"\bOOM\b|'maxmemory'")


class _Noting(Caller):
    """Notes what it is to send."""

    steps: list[Step[Any]]

    def run(
        self,
        step: Step[A],
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> A:
        self.steps.append(step)
        # Nobody looks at it.
        answer: Any = Gone()
        return answer  # type: ignore[no-any-return]


class _Written(Ledger):
    """A ledger whose steps are noted, and not taken."""

    def __init__(self, connector: Connector, namespace: str) -> None:
        super().__init__(connector, namespace)
        noting = _Noting(self._caller.client, self._caller.shown, 0)
        self.steps = noting.steps = []
        self._caller = self.workers._caller = noting


def self_test(ledger: Ledger) -> None:
    """Record, withdraw, claim and settle a task under a name that nobody has, all in one
    transaction, of which nothing is left and which nobody sees.

    Raises LedgerRefused, or LedgerForbidden, for a server that does not do it; not for one that is
    full.  Raises LedgerUnavailable.
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
                # By its text: what the server does not know yet could not be told in between.
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
