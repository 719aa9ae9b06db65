"""What an attempt stores before it is settled: by the ledger, and as Celery would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, signals
from celery.app.task import Context
from celery.backends.redis import RedisBackend
from celery.exceptions import Retry

from celery_reliable import ReliableTask, clock
from celery_reliable.app import reliable_of
from celery_reliable.context import (
    RunningAttempt,
    WorkerProcess,
    current_worker,
    running,
    set_current_worker,
)
from celery_reliable.message import Stamp
from celery_reliable.model import Cause, ClaimRequest, TaskRef
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.recovery.announcements import announce
from celery_reliable.results.backend import PatientBackend
from tests.support.promises import promise
from tests.support.redis_server import RedisServer


def render() -> None:
    """Nobody runs it."""


class Attempt:
    """An attempt that this process runs, of a worker that has its lease."""

    def __init__(self, server: RedisServer, conf: dict[str, Any]) -> None:
        self.app = Celery("shop", broker=server.url(), backend=server.url(3), set_as_current=False)
        self.app.conf.update(conf)
        self.task = self.app.task(render, base=ReliableTask, name="app.work", shared=False)
        self.results = server.client(3)
        self.ledger = reliable_of(self.app).ledger
        self.worker = WorkerProcess("one@host")
        self.worker.renewed(clock.now() + 60)
        self.ledger.workers.register(self.worker.id, lease_ms=60_000, client_id=0, facts={})
        self.id = self.task.apply_async().id
        record = self.ledger.find(self.id)
        assert record is not None
        stamp = Stamp(self.ledger.generation, record.epoch)
        ref = TaskRef(self.id, "app.work")
        request = ClaimRequest(ref, record.epoch, stamp.generation, self.worker.id, "token", 1)
        answer: Any = self.ledger.claim(request)
        self.claim = request.claim(answer.attempt, answer.losses)
        self._before = running.set(RunningAttempt(self.claim, stamp))
        self._worker = current_worker()
        set_current_worker(self.worker)
        self.request = Context(id=self.id)

    @property
    def backend(self) -> PatientBackend:
        backend = self.task.backend
        assert isinstance(backend, PatientBackend)
        return backend

    @property
    def status(self) -> str:
        return str(self.app.AsyncResult(self.id).status)

    @property
    def ttl(self) -> int:
        return int(self.results.ttl(f"celery-task-meta-{self.id}"))

    def bury(self) -> None:
        """It is lost once too often; this process runs it no more."""
        self.ledger.lose(self.claim, Cause.WORKER_LOST, max_losses=0, due_in_ms=9_000)
        running.set(None)

    def close(self) -> None:
        running.reset(self._before)
        set_current_worker(self._worker)
        self.results.close()
        reliable_of(self.app).close()
        self.app.close()


@pytest.fixture
def conf() -> dict[str, Any]:
    """Settings of the app."""
    return {}


@pytest.fixture
def attempt(redis_server: RedisServer, conf: dict[str, Any]) -> Iterator[Attempt]:
    """An attempt of an app with its results in another database of the ledger's server."""
    found = Attempt(redis_server, conf)
    yield found
    found.close()


@pytest.mark.skipif(
    not hasattr(RedisBackend, "supports_failure_expires"), reason="Celery 5.6 has no such setting"
)
@pytest.mark.parametrize(
    "conf", [{"result_expires": 3600, "result_failure_expires": 60}, {"result_expires": 60}]
)
def test_a_failure_expires_as_it_is_set(attempt: Attempt) -> None:
    attempt.backend.mark_as_failure(attempt.id, ValueError("x"), request=attempt.request)

    assert 50 < attempt.ttl <= 60


@pytest.mark.parametrize("conf", [{"result_expires": 0}])
def test_what_expires_never_is_kept(attempt: Attempt) -> None:
    attempt.backend.mark_as_failure(attempt.id, ValueError("x"), request=attempt.request)

    assert attempt.ttl == -1


def test_a_retry_is_stored_though_nobody_has_published_it(attempt: Attempt) -> None:
    """As of a task that raises Celery's Retry by itself."""
    attempt.backend.mark_as_retry(attempt.id, Retry("by hand"), request=attempt.request)

    assert attempt.status == "RETRY"


@promise("late-changes-nothing")
def test_who_announces_a_letter_that_is_replayed_meanwhile_tells_nobody(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt.bury()
    postpone, told = attempt.ledger.postpone, []

    def postponed(*args: Any, **kwargs: Any) -> Any:
        answer = postpone(*args, **kwargs)
        # An operator is quicker than who has just taken it upon himself to announce.
        letters = DeadLetters(attempt.app)
        letters.replay(attempt.id)
        return answer

    def heard(task_id: str, **_: Any) -> None:
        told.append(task_id)

    monkeypatch.setattr(attempt.ledger, "postpone", postponed)
    signals.task_failure.connect(heard)
    try:
        announce(attempt.app, attempt.ledger, attempt.id)
    finally:
        signals.task_failure.disconnect(heard)

    assert (attempt.status, told) == ("PENDING", [])
