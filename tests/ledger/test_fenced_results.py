"""What an attempt stores before it is settled: by the ledger, and as Celery would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
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
from celery_reliable.model import Cause, Claim, ClaimRequest, DeadLetter, TaskRef
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.recovery.announcements import announce
from celery_reliable.results.backend import PatientBackend, fail_as_buried
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
        self.results, self.server = server.client(3), server.client()
        self.ledger = reliable_of(self.app).ledger
        self.worker = WorkerProcess("one@host")
        self.worker.renewed(clock.now() + 60)
        self.ledger.workers.register(self.worker.id, lease_ms=60_000, client_id=0, facts={})
        self.id = self.task.apply_async().id
        self.claim = self.claim_again()
        record = self.ledger.find(self.id)
        assert record is not None
        stamp = Stamp(self.ledger.generation, record.epoch)
        self._before, self._worker = (
            running.set(RunningAttempt(self.claim, stamp)),
            current_worker(),
        )
        set_current_worker(self.worker)
        self.request = Context(id=self.id)

    def claim_again(self, token: str = "token") -> Claim:
        record = self.ledger.find(self.id)
        assert record is not None
        ref = TaskRef(self.id, "app.work")
        request = ClaimRequest(ref, record.epoch, self.ledger.generation, self.worker.id, token, 1)
        answer: Any = self.ledger.claim(request)
        return request.claim(answer.attempt, answer.losses)

    @property
    def running(self) -> RunningAttempt:
        found = running.get()
        assert found is not None
        return found

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

    def taken(self) -> None:
        """It is lost, and begins once more elsewhere."""
        self.ledger.lose(self.claim, Cause.WORKER_LOST, max_losses=9, due_in_ms=9_000)
        self.claim_again("another")

    def buried(self) -> DeadLetter:
        """It is lost once too often; this process runs it no more."""
        self.ledger.lose(self.claim, Cause.WORKER_LOST, max_losses=0, due_in_ms=9_000)
        running.set(None)
        letter = self.ledger.dead_letter(self.id)
        assert letter is not None
        return letter

    def close(self) -> None:
        running.reset(self._before)
        set_current_worker(self._worker)
        self.results.close()
        self.server.close()
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


@pytest.mark.parametrize(
    "conf",
    [
        {"result_serializer": name, "result_accept_content": ["json", "pickle"]}
        for name in ("json", "pickle")
    ],
)
@pytest.mark.parametrize("state", ["FAILURE", "STARTED", "PROGRESS"])
@promise("late-changes-nothing")
def test_it_is_stored_by_the_current_attempt_alone(attempt: Attempt, state: str) -> None:
    def store() -> None:
        if state == "FAILURE":
            attempt.backend.mark_as_failure(attempt.id, ValueError("x"), request=attempt.request)
        else:
            attempt.backend.store_result(attempt.id, {"done": 1}, state, request=attempt.request)

    store()
    assert attempt.status == state
    attempt.results.flushdb()
    attempt.taken()

    store()

    assert attempt.status == "PENDING"
    # What it only tells of itself ends nothing.
    assert attempt.running.is_closed is (state == "FAILURE")


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


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_published_retry_is_stored_until_its_attempt_begins(
    attempt: Attempt, has_begun: bool
) -> None:
    attempt.task.push_request(id=attempt.id, called_directly=False, args=(), kwargs={})
    with pytest.raises(Retry):
        attempt.task.retry(countdown=0)
    assert attempt.running.is_closed
    if has_begun:
        attempt.claim_again("another")

    attempt.backend.mark_as_retry(attempt.id, Retry("again"), request=attempt.request)

    assert attempt.status == ("PENDING" if has_begun else "RETRY")


@pytest.mark.parametrize("is_stamped", [True, False])
def test_what_the_server_has_lost_is_stored_all_the_same(
    attempt: Attempt, is_stamped: bool
) -> None:
    if not is_stamped:
        attempt.running.stamp = Stamp()
    attempt.server.flushdb()

    attempt.backend.mark_as_failure(attempt.id, ValueError("x"), request=attempt.request)

    assert attempt.status == "FAILURE"


def test_what_is_of_others_is_stored_as_always(attempt: Attempt) -> None:
    attempt.taken()

    attempt.backend.store_result("another", 1, "SUCCESS")

    assert attempt.app.AsyncResult("another").result == 1


def test_what_a_full_server_refuses_raises_what_celery_raises(attempt: Attempt) -> None:
    attempt.server.config_set("maxmemory", 1)

    with pytest.raises(redis.ResponseError, match="maxmemory"):
        attempt.backend.store_result(
            attempt.id, {"done": "." * 800}, "PROGRESS", request=attempt.request
        )

    assert not attempt.running.is_closed


@pytest.mark.parametrize("meanwhile", ["", "replayed", "replayed and buried", "discarded"])
@promise("late-changes-nothing")
def test_the_failure_of_a_burial_is_stored_only_while_it_is_the_same(
    attempt: Attempt, meanwhile: str
) -> None:
    letter = attempt.buried()
    letters = DeadLetters(attempt.app)
    if "replayed" in meanwhile:
        letters.replay(attempt.id)
    if "and buried" in meanwhile:
        attempt.claim = attempt.claim_again("another")
        attempt.buried()
    if meanwhile == "discarded":
        letters.discard(attempt.id)
    errors: list[str] = []

    @attempt.app.task(name="app.told", shared=False)
    def told(request: Any, error: Any, traceback: Any) -> None:
        errors.append(request.id)

    attempt.request.errbacks = [told.s()]

    is_told = fail_as_buried(
        attempt.app,
        attempt.backend,
        letter,
        attempt.request,
        RuntimeError("lost"),
        store_result=True,
    )

    assert is_told is not bool(meanwhile)
    assert attempt.status == ("PENDING" if meanwhile else "FAILURE")
    assert len(errors) == (0 if meanwhile else 1)


@promise("late-changes-nothing")
def test_who_announces_a_letter_that_is_replayed_meanwhile_tells_nobody(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt.buried()
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
