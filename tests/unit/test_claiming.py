"""An attempt, without a server: when it may begin unasked, and what it may store afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery, states
from celery.exceptions import Ignore

from celery_reliable import clock, events
from celery_reliable.app import Framework
from celery_reliable.attempt import execution
from celery_reliable.attempt.claiming import _without_attempt, claimed_early
from celery_reliable.attempt.delivery import EARLY
from celery_reliable.context import RunningAttempt, WorkerProcess, running
from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger import answers
from celery_reliable.ledger.answers import NoLease
from celery_reliable.message import Stamp
from celery_reliable.model import Claim, EarlyClaim, Record, State, StoredResult
from celery_reliable.recovery import call_off_task
from celery_reliable.results import backend as stores
from celery_reliable.results.backend import PatientBackend

# -- early claims

LEASE_SECONDS = 10.0


@pytest.fixture
def worker() -> WorkerProcess:
    """A worker whose lease holds, in this process."""
    process = WorkerProcess("one@host")
    process.renewed(clock.now() + LEASE_SECONDS)
    return process


def died(worker: WorkerProcess) -> None:
    worker.lost()


def born_again(worker: WorkerProcess) -> None:
    worker.reborn()
    worker.renewed(clock.now() + LEASE_SECONDS)


def lapsed(worker: WorkerProcess) -> None:
    worker.renewed(clock.now() - 0.001)


def outlived(worker: WorkerProcess) -> None:
    # Neither this process nor its parent is the worker any more.
    worker.pid = next(pid for pid in range(2, 9) if pid not in (os.getpid(), os.getppid()))


@pytest.mark.parametrize("what", [died, born_again, lapsed, outlived])
def test_where_somebody_may_have_taken_it_the_ledger_is_asked(
    worker: WorkerProcess, what: Callable[[WorkerProcess], None]
) -> None:
    early = EarlyClaim(1, 0, worker.id, "token", clock.now(), "")
    assert claimed_early(worker, {EARLY: tuple(early)}) == early
    what(worker)
    assert claimed_early(worker, {EARLY: tuple(early)}) is None


def test_what_a_worker_without_a_lease_was_given_is_not_acknowledged() -> None:
    delivery: Any = SimpleNamespace(
        task=SimpleNamespace(name="work"), id="id", request={}, stamp=Stamp()
    )

    ended = _without_attempt(delivery, NoLease())

    assert ended.info.state == states.REJECTED
    assert ended.info.retval.requeue


# -- no body begins, and nothing that it returned or raised goes further, where it does not count


@pytest.fixture
def attempt(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningAttempt]:
    """The attempt that this process runs; it was taken from its worker."""
    found = RunningAttempt(Claim("id", 1, worker.id, "token"))
    monkeypatch.setattr(execution, "current_worker", lambda: worker)
    monkeypatch.setattr(execution, "reliable_of", lambda app: SimpleNamespace(ledger=None))
    monkeypatch.setattr(execution, "current_task", SimpleNamespace(app=None))
    for module in (execution, stores):
        monkeypatch.setattr(module, "is_current", lambda ledger, one: False)
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
        execution.guarded(function)()

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
        execution.guarded(lambda: began.append(1))()

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

    monkeypatch.setattr(execution, "is_current", refuses)
    worker.doubt()

    execution.guarded(lambda: began.append(1))()

    assert began == [1]
    assert not attempt.is_closed


# -- what is stored


def test_errbacks_are_called_when_the_failure_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    stored: Any = SimpleNamespace(mark_as_failure=lambda *_, **__: done.append("stored"))
    monkeypatch.setattr(
        "celery_reliable.results.backend.run_errbacks", lambda *_: done.append("told")
    )
    task = SimpleNamespace(name="work")

    PatientBackend(task, stored).mark_as_failure(
        "id", ValueError(), request=SimpleNamespace(errbacks=["one"])
    )

    assert done == ["stored", "told"]


@pytest.mark.parametrize(
    ("answer", "is_settled"), [(answers.Settled(), True), (answers.Fenced("running"), False)]
)
def test_what_was_settled_or_refused_with_its_result_is_closed(
    attempt: RunningAttempt,
    monkeypatch: pytest.MonkeyPatch,
    answer: answers.SettleAnswer,
    is_settled: bool,
) -> None:
    ledger = SimpleNamespace(settle=lambda *_, **__: answer)
    monkeypatch.setattr(stores, "reliable_of", lambda app: SimpleNamespace(ledger=ledger))
    monkeypatch.setattr(stores, "keep_ms", lambda task: 0)
    result = StoredResult("key", "value", "begins", 0, 0)

    # Celery stores nothing besides.
    assert PatientBackend(SimpleNamespace(app=None), object())._settled_with(result, attempt)

    assert attempt.is_closed
    assert attempt.is_settled is is_settled


def test_an_outcome_that_has_waited_is_stored_by_the_current_attempt_only(
    attempt: RunningAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(ledger=None, framework=Framework())
    monkeypatch.setattr(stores, "reliable_of", lambda app: found)
    tries = []

    def store() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise OSError

    backend: Any = SimpleNamespace(exception_safe_to_retry=lambda exc: True)
    PatientBackend(SimpleNamespace(app=None, name="work"), backend)._store(store)

    assert len(tries) == 1
    assert attempt.is_closed


MESSAGE = (
    '{"body": "[[], {}, {}]", "headers": {"id": "task", "task": "shop.work"}, "properties": {}}'
)


@pytest.mark.parametrize("seen", [State.QUEUED, State.WAITING])
def test_it_is_revoked_to_its_caller_before_its_record_goes(seen: State) -> None:
    """Whoever dies in between leaves a record, by which somebody finds it again."""
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    task_id = f"first {seen.value}"
    states = []

    def revoke(*_: Any, **__: Any) -> answers.Cancelled:
        states.append(cast(Any, app.AsyncResult(task_id)).state)
        return answers.Cancelled()

    ledger: Any = SimpleNamespace(revoke=revoke)
    call_off_task(app, ledger, Record(task_id, seen, name="shop.work", message=MESSAGE))

    assert states == ["REVOKED"]
