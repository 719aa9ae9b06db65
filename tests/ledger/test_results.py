"""A result is stored with the settlement, both or neither; and by the current attempt alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from celery_reliable.ledger import connect, server_of
from celery_reliable.ledger.answers import Elsewhere, Fenced, Gone, Settled, Stored
from celery_reliable.ledger.scripts import inside, script
from celery_reliable.message import Stamp
from celery_reliable.model import Cause, ClaimRequest, State, StoredResult, TaskRef
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.recovery.announcements import announce
from celery_reliable.results.backend import PatientBackend
from tests.ledger.scene import RestartableScene, Scene, open_ledger
from tests.support.promises import promise
from tests.support.redis_server import RedisServer

KEY = "celery-task-meta-task"
RESULT = StoredResult(KEY, '{"status": "SUCCESS", "result": 1}', '{"status": "SUCCESS"', 60, 0)


def kept(scene: Scene, db: int) -> redis.Redis:
    """A client of the database where results are."""
    where = scene.client.connection_pool.connection_kwargs
    return redis.Redis(host=where["host"], port=where["port"], db=db, decode_responses=True)


@promise("results-best-effort", "late-changes-nothing")
@pytest.mark.parametrize("step", ["settle", "store"])
@pytest.mark.parametrize("db", [0, 3])
@pytest.mark.parametrize("expires_seconds", [0, 60])
def test_it_is_stored_and_told_in_whichever_database(
    scene: Scene, step: str, db: int, expires_seconds: int
) -> None:
    """With the settlement, or before it by the attempt that is settled later."""
    claim = scene.claim(scene.publish())
    with kept(scene, db) as client, client.pubsub(ignore_subscribe_messages=True) as told:
        client.delete(KEY)
        told.subscribe(KEY)
        result = replace(RESULT, db=db, expires_seconds=expires_seconds)

        answer = getattr(scene.ledger, step)(claim, result)

        assert isinstance(answer, Settled if step == "settle" else Stored)
        assert client.get(KEY) == RESULT.value
        assert (client.ttl(KEY) == -1) == (expires_seconds == 0)
        heard = next(one for _ in range(9) if (one := told.get_message(timeout=5)))
        assert (heard["channel"], heard["data"]) == (KEY, RESULT.value)
        client.delete(KEY)
    if step == "store":
        assert scene.record_of().state is State.RUNNING
        assert isinstance(scene.ledger.settle(claim), Settled)
    assert scene.ledger.find("task") is None
    assert isinstance(getattr(scene.ledger, step)(claim, result), Gone)


def test_what_comes_after_it_in_one_step_finds_the_ledgers_database(scene: Scene) -> None:
    claim, record = scene.claim(scene.publish()), scene.ledger.keys.record("task")
    both = inside(
        script("store"), "both", "store(KEYS, ARGV)\nreturn redis.call('EXISTS', KEYS[2])"
    )
    keys = [scene.ledger.keys.begin, record, KEY]
    args = [claim.attempt, claim.token, RESULT.value, RESULT.final, 60]

    for db in (0, 3):
        assert isinstance(scene.ledger.store(claim, replace(RESULT, db=db)), Stored)
        assert scene.client.eval(both.text, 3, *keys, *args, db or "", 0) == 1

    for db in (0, 3):
        with kept(scene, db) as client:
            assert client.get(KEY) == RESULT.value
            client.delete(KEY)


@promise("late-changes-nothing")
@pytest.mark.parametrize("of", ["another attempt", "another claim"])
def test_who_is_not_current_stores_nothing(scene: Scene, of: str) -> None:
    claim = scene.claim(scene.publish())
    late = replace(claim, attempt=2) if of == "another attempt" else replace(claim, token="late")
    with kept(scene, 0) as client:
        assert scene.ledger.store(late, RESULT) == Fenced("running")
        assert not client.exists(KEY)


@pytest.mark.parametrize("step", ["settle", "store"])
@pytest.mark.parametrize(
    ("before", "final", "kept_by"),
    [
        ('{"status": "SUCCESS", "result": 0}', RESULT.final, ("settle", "store")),
        ('{"status": "SUCCESS", "result": 0}', "", ("settle",)),
        ('{"status": "FAILURE"}', RESULT.final, ()),
        ('{"status": "PROGRESS", "result": {"status": "SUCCESS"}}', RESULT.final, ()),
    ],
)
def test_a_success_is_never_replaced(
    scene: Scene, step: str, before: str, final: str, kept_by: tuple[str, ...]
) -> None:
    claim = scene.claim(scene.publish())
    with kept(scene, 0) as client:
        client.set(KEY, before)

        getattr(scene.ledger, step)(claim, replace(RESULT, final=final))

        assert client.get(KEY) == (before if step in kept_by else RESULT.value)
        client.delete(KEY)


@pytest.mark.parametrize("length", [0, 5000])
def test_a_success_that_is_there_is_settled_with_on_a_full_server(
    restartable: RestartableScene, length: int
) -> None:
    scene = restartable
    claim = scene.claim(scene.publish())
    value = f'{{"status": "SUCCESS", "result": "{"x" * length}"}}'
    with kept(scene, 0) as client, client.pubsub(ignore_subscribe_messages=True) as told:
        client.set(KEY, '{"status": "SUCCESS", "result": 0}')
        told.subscribe(KEY)
        assert told.get_message(timeout=5) is None
        client.config_set("maxmemory", 1)

        assert isinstance(scene.ledger.settle(claim, replace(RESULT, value=value)), Settled)

        assert client.get(KEY) == '{"status": "SUCCESS", "result": 0}'
        # Nothing has changed there.
        assert told.get_message(timeout=0.2) is None
        client.config_set("maxmemory", 0)
    assert scene.ledger.find("task") is None


def test_nothing_changes_where_the_database_cannot_be_chosen(redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.acl_setuser("us", enabled=True, nopass=True, keys="*", channels="*",
                       commands=["+@all", "-select"])  # fmt: skip
    ledger = open_ledger(redis_server.url().replace("://", "://us:x@"), "own")
    scene = Scene(ledger, client)
    scene.start_worker("me")
    claim = scene.claim(scene.publish())

    assert isinstance(ledger.settle(claim, replace(RESULT, db=3)), Elsewhere)
    assert isinstance(ledger.store(claim, replace(RESULT, db=3)), Elsewhere)

    assert scene.record_of().state is State.RUNNING
    assert isinstance(ledger.settle(claim, RESULT), Settled)
    ledger.close()
    client.close()


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("redis://h", "redis://h:6379/5", True),
        ("redis://:p@h", "redis://h", False),
        ("redis://u:p@h", "redis://v:p@h", False),
        ("redis://h:1", "redis://h:2", False),
        ("redis+socket:///tmp/r.sock", "redis+socket:///tmp/r.sock", True),
        ("redis+socket:///tmp/r.sock", "redis://h", False),
        ("sentinel://h:1", "redis://h:1", False),
        ("sentinel://h:1;sentinel://g:1", "sentinel://g:1;sentinel://h:1", True),
        ("sentinel://h:1;sentinel://g:1", "sentinel://h:1", False),
        ("sentinel://:p@h:1", "sentinel://h:1", False),
    ],
)
def test_servers_are_told_apart(one: str, other: str, is_same: bool) -> None:
    servers = [connect(url, transport_options={"master_name": "m"}).server for url in (one, other)]
    assert None not in servers
    assert (servers[0] == servers[1]) == is_same


@pytest.mark.parametrize(
    "url", ["sentinel://h:1/1;sentinel://g:1/2", "sentinel://:p@h;sentinel://g"]
)
def test_who_may_be_another_is_no_server(url: str) -> None:
    assert connect(url, transport_options={"master_name": "m"}).server is None
    assert server_of({}) is None
    assert server_of({"host": "h", "credential_provider": object()}) is None


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
