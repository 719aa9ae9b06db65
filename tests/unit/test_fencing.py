"""No body begins, and nothing that it has returned or raised goes any further, where its attempt
does not count any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore

from celery_reliable import clock, events
from celery_reliable.attempt import fencing
from celery_reliable.context import RunningAttempt, WorkerProcess, running
from celery_reliable.exceptions import LedgerRefused
from celery_reliable.model import Claim


@pytest.fixture
def worker() -> WorkerProcess:
    """A worker that has a lease."""
    found = WorkerProcess("one@host")
    found.renewed(clock.now() + 60)
    return found


@pytest.fixture
def attempt(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningAttempt]:
    """The attempt that this process runs; it was taken from its worker."""
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
def test_neither_its_result_nor_its_failure(
    attempt: RunningAttempt, worker: WorkerProcess, body: Any
) -> None:
    began = []

    def function() -> Any:
        began.append(body)
        worker.doubt()
        return body()

    with pytest.raises(Ignore):
        fencing.guarded(function)()

    # It is asked when the body is over, which may have taken its time.
    assert began == [body]
    assert attempt.is_closed


@pytest.mark.parametrize("lapses", [WorkerProcess.doubt, WorkerProcess.reborn])
def test_what_stood_still_after_it_was_claimed_does_not_begin(
    attempt: RunningAttempt, worker: WorkerProcess, lapses: Any
) -> None:
    lapses(worker)
    began = []

    with pytest.raises(Ignore):
        fencing.guarded(lambda: began.append(1))()

    assert not began
    assert attempt.is_closed


def test_a_body_begins_where_the_ledger_refuses_to_say_whose_it_is(
    attempt: RunningAttempt, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the refusal would count as the task's own failure, and nothing has run."""
    began: list[int] = []

    def refuses(ledger: Any, one: RunningAttempt) -> bool:
        if began:
            return True
        raise LedgerRefused("no", operation="find", reply="NOPERM")

    monkeypatch.setattr(fencing, "is_current", refuses)
    worker.doubt()

    fencing.guarded(lambda: began.append(1))()

    assert began == [1]
    assert not attempt.is_closed
