"""Tries a task's whole life on the server when a worker starts, before a real task can fail."""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING, Any

from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger.answers import Claimed, Settled
from celery_reliable.ledger.caller import FORMAT
from celery_reliable.ledger.transitions import Step

if TYPE_CHECKING:
    from celery_reliable.ledger import Ledger

__all__ = [
    "self_test",
]

#: A full server is no reason not to start: it may have room again, and callers wait for that.
_FULL = re.compile(r"\bOOM\b|'maxmemory'")


def self_test(ledger: Ledger) -> None:
    """Record, withdraw, claim and settle a task with a name that nobody else has.

    All of it is one transaction: nobody sees it, and it leaves nothing.  Raises LedgerRefused or
    LedgerForbidden if the server does not let it, and LedgerUnavailable if it does not answer.  A
    full server raises nothing.
    """
    name = f"self-test-{secrets.token_hex(8)}"
    calls, hour_ms = ledger.calls, 3_600_000
    steps: list[Step[Any]] = [
        calls.record(
            id=name,
            name="",
            epoch=name,
            generation=ledger.generation,
            due_in_ms=hour_ms,
            message="",
            worker="",
            sender="",
            queue="",
        ),
        calls.cancel(id=name, seen=name, is_unsent=True, due_in_ms=hour_ms),
        calls.register(
            worker=name,
            lease_ms=hour_ms,
            client_id=0,
            facts="{}",
            number=1,
            format=FORMAT,
            queue="",
        ),
        calls.claim(
            id=name,
            name="",
            epoch="",
            generation="",
            message="none",
            worker=name,
            token=name,
            pid=os.getpid(),
            time_to_run_ms=0,
            alone_ms=0,
        ),
        calls.settle(
            id=name,
            attempt=1,
            token=name,
            worker=name,
            result="",
            expires_seconds=0,
            own_db=ledger.connector.db,
            keep_ms=0,
        ),
        calls.deregister(worker=name, in_unacked=0, taken_ms=hour_ms),
    ]

    def run(client: Any) -> list[Any]:
        with client.pipeline(transaction=True) as pipe:
            for step in steps:
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
