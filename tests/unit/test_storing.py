"""A result backend that waits: what it is to those who do not know of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_reliable import events
from celery_reliable.app import Framework
from celery_reliable.context import RunningAttempt, running
from celery_reliable.ledger import answers
from celery_reliable.model import Claim, StoredResult
from celery_reliable.results import backend as stores
from celery_reliable.results.backend import PatientBackend


@pytest.fixture
def backend() -> Any:
    """The backend of an app's results."""
    app = Celery("it", backend="redis://127.0.0.1:1/0", set_as_current=False)
    yield app.backend
    app.close()


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


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningAttempt]:
    """The attempt that this process runs; it was taken from its worker."""
    found = RunningAttempt(Claim("id", 1, "one@host/1.0", "token"))
    monkeypatch.setattr(stores, "is_current", lambda ledger, one: False)
    monkeypatch.setattr(events, "task_fenced", lambda **_: None)
    token = running.set(found)
    yield found
    running.reset(token)


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
