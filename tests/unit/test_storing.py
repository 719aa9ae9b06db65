"""A result backend that waits: what it is to those who do not know of it."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_reliable.compat.backend import SUCCESS_BEGINS
from celery_reliable.results.backend import PatientBackend


@pytest.fixture
def backend() -> Any:
    """The backend of an app's results."""
    app = Celery("it", backend="redis://127.0.0.1:1/0", set_as_current=False)
    yield app.backend
    app.close()


def test_what_passes_it_on_passes_on_the_backend_itself(backend: Any) -> None:
    patient = PatientBackend(object(), backend)
    for other in (pickle.loads(pickle.dumps(patient)), copy.copy(patient)):
        assert type(other) is type(backend)
    assert patient.as_uri() == backend.as_uri()


def test_outside_of_attempts_an_error_is_raised_at_once(backend: Any) -> None:
    patient = PatientBackend(object(), backend)
    calls = []

    def failing(*args: Any, **kwargs: Any) -> None:
        calls.append(args)
        raise ConnectionError

    backend.mark_as_done = failing
    with pytest.raises(ConnectionError):
        patient.mark_as_done("id", 1)
    assert len(calls) == 1


@pytest.mark.parametrize(("state", "is_success"), [("SUCCESS", True), ("PROGRESS", False)])
def test_a_success_is_told_by_how_it_begins(backend: Any, state: str, is_success: bool) -> None:
    meta = backend._get_result_meta({"status": "SUCCESS"}, state, None, None)
    assert backend.encode(meta).startswith(SUCCESS_BEGINS) is is_success


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
