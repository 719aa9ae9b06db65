"""That a worker has survived a message is told until it is heard, and then no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger.answers import Opening
from celery_reliable.worker.unprocessable import Openings


def test_it_is_told_until_it_is_heard() -> None:
    told: list[str] = []

    def opened(_: str, delivery: str, **__: Any) -> None:
        told.append(delivery)
        if len(told) == 1:
            raise LedgerUnavailable("no answer")

    workers = SimpleNamespace(open=lambda *_, **__: Opening(), opened=opened)
    reliable: Any = SimpleNamespace(
        ledger=SimpleNamespace(workers=workers), config=SimpleNamespace(max_losses=3)
    )
    openings = Openings(reliable, WorkerProcess("one@host"))

    assert openings.begin("tag", "id", {})
    for _ in range(3):
        openings.end()

    assert told == ["tag", "tag"]
