"""How a worker takes its lease."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_reliable.context import WorkerProcess
from celery_reliable.ledger import answers
from celery_reliable.orders import NO_ORDERS
from celery_reliable.worker import heartbeat
from celery_reliable.worker.heartbeat import Heartbeat
from tests.support.promises import promise


@promise("frozen-not-dead")
def test_who_was_declared_dead_before_it_heard_that_it_is_registered_takes_another_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, asked = WorkerProcess("one"), []

    def register(worker: str, **_: Any) -> Any:
        asked.append(worker)
        # The reply to a call before was lost, and the worker stood still for a lease.
        return answers.DeclaredDead() if len(asked) == 1 else answers.Registered()

    workers = SimpleNamespace(register=register)
    connection = SimpleNamespace(
        ledger=SimpleNamespace(workers=workers, orders=SimpleNamespace(read=lambda: NO_ORDERS)),
        identify=lambda: 7,
        is_open=True,
    )
    monkeypatch.setattr(heartbeat, "LeaseConnection", lambda reliable: connection)
    monkeypatch.setattr(heartbeat, "why_no_witness", lambda reliable: "")
    config = SimpleNamespace(
        lease_ms=10_000, lease_seconds=10.0, heartbeat_seconds=2.5, witness_seconds=1.0
    )
    host: Any = SimpleNamespace(
        process=process,
        app=None,
        reliable=SimpleNamespace(config=config),
        facts=dict[str, Any],
        counted=dict[str, int],
    )

    Heartbeat(host).register()

    assert asked == [f"{process.base}.0", f"{process.base}.1"]
    assert process.id == asked[1]
    assert process.surely_holds(asked[1])
    assert not process.surely_holds(asked[0])
