"""A project to run: its app in this process, its workers and beats as processes of their own."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.result import AsyncResult
from kombu import pools

from celery_reliable.app import reliable_of
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.desk import Desk
from celery_reliable.recovery.sweeper import Sweeper
from tests.conftest import PROCESSES, StartRedis
from tests.integration.commands import APP, Ran, Run, run_celery
from tests.integration.project.factory import Settings, create_app
from tests.support.effects import Effects
from tests.support.processes import Beat, CeleryProcess, Worker
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel, start_replica
from tests.support.traces import check_servers
from tests.support.waiting import wait_for

#: What no test needs and each worker takes a second for.
QUICK = ("--without-mingle", "--without-gossip")

#: The least times that the other settings allow.
SOON = {"QUEUED_SECONDS": 8, "LEASE_SECONDS": 4, "SWEEP_SECONDS": 1}

Start = Callable[..., Worker]


class Project:
    """The project's settings, and an app of this process that publishes by them.

    `effects` is what its tasks did, and `redis` the test's own server: broker, results and ledger
    unless the settings say otherwise.
    """

    def __init__(
        self, settings: Settings, effects: Effects, redis: RedisServer, start: Start | None = None
    ) -> None:
        self.settings = settings
        self.effects = effects
        self.redis = redis
        self._start = start
        self.app: Celery = create_app(settings)
        self._derived: list[Project] = []
        # One that is collected while its server is away would wait for it, in the middle of
        # whatever the test does then.
        self._results: list[AsyncResult[Any]] = []

    def with_settings(self, **changes: Any) -> Project:
        """The same project with other settings, such as `broker_url=proxy.url()`.

        Workers of them are those that it starts itself.
        """
        settings = replace(self.settings, **changes)
        derived = Project(settings, self.effects, self.redis, self._start)
        self._derived.append(derived)
        return derived

    def task(self, name: str) -> Any:
        """The task of this name (a function of the project's `tasks` module)."""
        return self.app.tasks[f"project.{name}"]

    def send(self, name: str, *args: Any, **options: Any) -> AsyncResult[Any]:
        """Publish a task with these arguments; `options` are those of `apply_async`."""
        result: AsyncResult[Any] = self.task(name).apply_async(args, **options)
        self._results.append(result)
        return result

    def begin(self, name: str, *args: Any, **options: Any) -> AsyncResult[Any]:
        """Publish a task, and wait until it runs."""
        result = self.send(name, *args, **options)
        self.effects.run_of(result.id)
        return result

    def start_worker(self, name: str = "worker", **options: Any) -> Worker:
        """Start a worker of this project, with what the fixture `start_worker` takes."""
        assert self._start is not None
        return self._start(name, project=self, **options)

    def start_workers(self, *names: str, **options: Any) -> dict[str, Worker]:
        """Start workers of these names side by side."""
        workers = {name: self.start_worker(name, wait=False, **options) for name in names}
        for worker in workers.values():
            worker.wait_until_ready()
        return workers

    def environ(self, ready_key: str, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process of this project."""
        own = {**self.settings.to_environ(), "READY_KEY": ready_key}
        return {**os.environ, **own, **extra}

    def close(self) -> None:
        """Close what the app of this process has open, and that of the projects made from it."""
        for derived in self._derived:
            derived.close()
        # The server is about to go: a result that is collected later has nobody to tell.
        self.app.backend.remove_pending_result = lambda result: None
        if not self.settings.stock:
            reliable_of(self.app).close()
        self.app.close()
        self.app.effects.client.close()


def collect_what_apps_leave() -> None:
    """Collect here what Celery and kombu keep open until then, and not in a later test.

    An app's producers and its backend's subscriptions cannot all be closed by a caller.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def settings_of(server: RedisServer, effects: Effects) -> Settings:
    """The settings of a project with broker, results and ledger on this server."""
    pool = effects.client.connection_pool.connection_kwargs
    return Settings(
        broker_url=server.url(),
        result_url=server.url(1),
        effects_url=f"redis://{pool['host']}:{pool['port']}/{pool['db']}",
    )


@pytest.fixture
def project_settings(redis_server: RedisServer, effects: Effects) -> Settings:
    """The project's settings: broker, results and ledger on this test's own server."""
    return settings_of(redis_server, effects)


@pytest.fixture
def project(
    project_settings: Settings, effects: Effects, redis_server: RedisServer, start_worker: Start
) -> Iterator[Project]:
    """The project with ReliableTask; override `project_settings` in a test module to change it."""
    running = Project(project_settings, effects, redis_server, start_worker)
    yield running
    running.close()
    del running
    collect_what_apps_leave()


@pytest.fixture
def soon(project: Project) -> Project:
    """The project, which looks soon after what nobody has begun."""
    return project.with_settings(reliable=SOON)


@pytest.fixture
def ledger_server(start_redis: StartRedis) -> RedisServer:
    """A Redis for the ledger alone; `redis_server` is the broker."""
    return start_redis()


@pytest.fixture
def apart(project: Project, ledger_server: RedisServer) -> Project:
    """The project with its ledger there."""
    return project.with_settings(reliable={"REDIS_URL": ledger_server.url()})


@pytest.fixture
def letters(project: Project) -> DeadLetters:
    """The project's dead letters."""
    return DeadLetters(project.app)


@pytest.fixture
def desk(project: Project) -> Iterator[Desk]:
    """The desk as an operator opens it: by connections of its own."""
    with Desk(project.app) as found:
        yield found


@pytest.fixture
def run(project: Project, tmp_path: Path) -> Run:
    """Run `celery -A … reliable …` with the project's settings."""

    def run(*arguments: str, project: Project = project, answer: str = "", **environ: str) -> Ran:
        return run_celery(
            "reliable",
            *arguments,
            app=APP,
            environ=project.environ("ready:none", environ),
            folder=tmp_path,
            answer=answer,
        )

    return run


@pytest.fixture
def results(start_redis: StartRedis) -> RedisServer:
    """A Redis for results alone."""
    return start_redis()


@pytest.fixture
def sweeper(project: Project) -> Iterator[Sweeper]:
    """A sweeper of this process, which has run no pass yet."""
    found = Sweeper(project.app)
    yield found
    found.close()


@pytest.fixture
def stock_project(project: Project) -> Project:
    """The same project with Celery's own base and `acks_late`."""
    return project.with_settings(stock=True)


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> Iterator[list[CeleryProcess]]:
    """Every process of this test: ended after it, and reported when it failed."""
    started: list[CeleryProcess] = []
    request.node.stash[PROCESSES] = started
    yield started
    for process in started:
        process.end()


def launch(
    name: str,
    project: Project,
    log_path: Path,
    *,
    app: str = APP,
    concurrency: int = 2,
    pool: str = "prefork",
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    chatty: bool = False,
) -> Worker:
    """Begin to start a worker.

    `app` names another module, `environ` adds to the environment, and `options` to the command
    line. Only who is `chatty` speaks to other workers at its start.
    """
    ready_key = f"ready:{uuid4()}"
    return Worker(
        name,
        app=app,
        environ=project.environ(ready_key, environ or {}),
        log_path=log_path,
        is_ready=lambda: bool(project.effects.client.exists(ready_key)),
        concurrency=concurrency,
        pool=pool,
        options=options if chatty else (*QUICK, *options),
    )


@pytest.fixture
def start_worker(
    request: pytest.FixtureRequest, processes: list[CeleryProcess], log_directory: Path
) -> Start:
    """Start a worker of `project`, or of another one, and wait until it is ready.

    With `wait=False` several start side by side; call `wait_until_ready` on each. The other
    options are those of `launch`.
    """

    def start(
        name: str = "worker", *, project: Project | None = None, wait: bool = True, **options: Any
    ) -> Worker:
        chosen = project or request.getfixturevalue("project")
        worker = launch(name, chosen, log_directory / f"{len(processes)}-{name}.log", **options)
        processes.append(worker)
        if wait:
            worker.wait_until_ready()
        return worker

    return start


class Fleet:
    """A server and two workers of the project, which tests have one after the other."""

    #: What belongs to the workers, and not to the tasks of a test.
    _KEPT = re.compile(r"_kombu.*|\{reliable:0\}:(meta|pass|waker|workers?|direct|orders|sent)\b.*")

    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder)
        self.workers: list[CeleryProcess] = []

    def start(self, effects: Effects) -> None:
        """Start all of it, and wait until it is ready."""
        self.server.start()
        owner = Project(settings_of(self.server, effects), effects, self.server)
        for name in ("one", "two"):
            self.workers.append(launch(name, owner, self.server.directory / f"{name}.log"))
        for worker in self.workers:
            worker.wait_until_ready()
        owner.close()

    def is_free(self) -> bool:
        """Whether both live, and nothing runs or is about to; what has ended is removed then."""
        with self.server.client() as client:

            def is_idle() -> bool:
                busy = client.keys("unacked:*") + client.keys("{reliable:0}:claims:*")
                return not busy and not client.llen("celery")

            try:
                wait_for(is_idle, 5, "the end of what runs")
            except AssertionError:
                return False
            for key in client.scan_iter():
                if not self._KEPT.fullmatch(key.decode()):
                    client.delete(key)
        with self.server.client(db=1) as results:
            results.flushdb()
        return all(worker.is_running for worker in self.workers)

    def end(self) -> None:
        """Kill all of it."""
        for worker in self.workers:
            worker.end()
        self.server.kill()


_FLEET: pytest.StashKey[Fleet] = pytest.StashKey()


@pytest.fixture
def shared_fleet(
    request: pytest.FixtureRequest,
    tracing: None,
    effects: Effects,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """The one of this process.  A test that fails, or leaves anything that runs, ends it."""
    stash = request.session.stash
    if _FLEET not in stash:
        fresh = Fleet(tmp_path_factory.mktemp("fleet"))
        request.session.addfinalizer(fresh.end)
        fresh.start(effects)
        stash[_FLEET] = fresh
    found, failed, is_free = stash[_FLEET], request.session.testsfailed, False
    yield found
    try:
        check_servers([found.server])
        is_free = request.session.testsfailed == failed and found.is_free()
    finally:
        if not is_free:
            found.end()
            del stash[_FLEET]
        # By the address of a server kombu finds the producers that a test before this has opened.
        pools.reset()


@pytest.fixture
def redis_server(request: pytest.FixtureRequest) -> RedisServer:
    """The fleet's server for a test that is `shared`, else one of its own."""
    if "shared" in request.fixturenames:
        return request.getfixturevalue("shared_fleet").server  # type: ignore[no-any-return]
    return request.getfixturevalue("start_redis")()  # type: ignore[no-any-return]


@pytest.fixture
def shared(request: pytest.FixtureRequest, project: Project, shared_fleet: Fleet) -> Project:
    """The project with the two workers of the fleet; for a test that kills or stops nothing but
    processes of their pools, and needs no setting of its own.
    """
    request.node.stash[PROCESSES] = shared_fleet.workers
    return project


@pytest.fixture
def worker(project: Project) -> Worker:
    """One prefork worker of concurrency 2."""
    return project.start_worker("one")


@pytest.fixture
def workers(project: Project) -> dict[str, Worker]:
    """Two of them."""
    return project.start_workers("one", "two")


@pytest.fixture
def start_beat(processes: list[CeleryProcess], log_directory: Path) -> Callable[..., Beat]:
    """Start a beat of a project with this schedule, and wait until it is ready."""

    def start(project: Project, schedule: Mapping[str, Any]) -> Beat:
        scheduled, ready_key = project.with_settings(celery={"beat_schedule": schedule}), "beat"
        beat = Beat(
            "beat",
            app=APP,
            environ=scheduled.environ(ready_key, {}),
            log_path=log_directory / "beat.log",
            is_ready=lambda: bool(project.effects.client.exists(ready_key)),
        )
        processes.append(beat)
        beat.wait_until_ready()
        return beat

    return start


@pytest.fixture
def replica(redis_server: RedisServer, start_redis: StartRedis) -> RedisServer:
    """A replica that has caught up with the test's server."""
    return start_replica(redis_server, start_redis)


@pytest.fixture
def sentinel(redis_server: RedisServer, replica: RedisServer, tmp_path: Path) -> Iterator[Sentinel]:
    """One Sentinel that watches the two."""
    with Sentinel(tmp_path, redis_server) as running:
        yield running
