"""What a body has returned or raised goes no further where its attempt does not count any more."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore

from celery_reliable import events
from celery_reliable.attempt import fencing
from celery_reliable.context import RunningAttempt, WorkerProcess, running
from celery_reliable.model import Claim


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningAttempt]:
    """The attempt that this process runs, of a worker whose lease may have lapsed; it was taken."""
    worker = WorkerProcess("one@host")
    found = RunningAttempt(Claim("id", 1, worker.id, "token"))
    monkeypatch.setattr(fencing, "current_worker", lambda: worker)
    monkeypatch.setattr(fencing, "reliable_of", lambda app: SimpleNamespace(ledger=None))
    monkeypatch.setattr(fencing, "current_task", SimpleNamespace(app=None))
    monkeypatch.setattr(fencing, "is_current", lambda ledger, one: False)
    monkeypatch.setattr(events, "task_fenced", lambda **_: None)
    token = running.set(found)
    yield found
    running.reset(token)


def fails() -> None:
    raise ValueError("of no use any more")


@pytest.mark.parametrize("body", [str, fails])
def test_neither_its_result_nor_its_failure(attempt: RunningAttempt, body: Any) -> None:
    began = []

    def function() -> Any:
        began.append(body)
        return body()

    with pytest.raises(Ignore):
        fencing.guarded(function)()

    # It is asked when the body is over, which may have taken its time.
    assert began == [body]
    assert attempt.is_closed
