"""A project to run: its app in this process, its workers and beats as processes of their own."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.result import AsyncResult

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

#: A worker of more than one queue pops its messages.
TWO_QUEUES = ("-Q", "celery,celery-spare")

#: What no test needs and each worker takes a second for.
QUICK = ("--without-mingle", "--without-gossip")

#: For a worker that fetches no more than it runs.
ONE_EACH = ("--prefetch-multiplier", "1")

#: The least times that the other settings allow.
SOON = {"QUEUED_SECONDS": 8, "LEASE_SECONDS": 4, "SWEEP_SECONDS": 1}

Start = Callable[..., Worker]

SWEEP_SCHEDULE = {"sweep": {"task": "celery_reliable.sweep", "schedule": 2.0}}


class Project:
    """The project's settings, and an app of this process that publishes by them.

    `effects` is what its tasks did, and `redis` the test's own server: broker, results and ledger
    unless the settings say otherwise.
    """

    def __init__(
        self, settings: Settings, effects: Effects, redis: RedisServer, start: Start
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

    def start_worker(self, name: str = "worker", **options: Any) -> Worker:
        """Start a worker of this project, with what the fixture `start_worker` takes."""
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


@pytest.fixture
def project_settings(
    request: pytest.FixtureRequest, redis_server: RedisServer, effects: Effects
) -> Settings:
    """The project's settings: broker, results and ledger on this test's own server.  A test that
    `keeps_fetched` is about what waits in a worker.
    """
    pool = effects.client.connection_pool.connection_kwargs
    return Settings(
        broker_url=redis_server.url(),
        result_url=redis_server.url(1),
        effects_url=f"redis://{pool['host']}:{pool['port']}/{pool['db']}",
        keeps_fetched=request.node.get_closest_marker("keeps_fetched") is not None,
    )


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
def stock_project(
    project_settings: Settings, effects: Effects, redis_server: RedisServer, start_worker: Start
) -> Iterator[Project]:
    """The same project with Celery's own base and `acks_late`."""
    stock = replace(project_settings, stock=True)
    running = Project(stock, effects, redis_server, start_worker)
    yield running
    running.close()
    del running
    collect_what_apps_leave()


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> Iterator[list[CeleryProcess]]:
    """Every process of this test: ended after it, and reported when it failed."""
    started: list[CeleryProcess] = []
    request.node.stash[PROCESSES] = started
    yield started
    for process in started:
        process.end()


@pytest.fixture
def start_worker(
    request: pytest.FixtureRequest, processes: list[CeleryProcess], log_directory: Path
) -> Start:
    """Start a worker of `project` and wait until it is ready.

    With `wait=False` several start side by side; call `wait_until_ready` on each. `project`
    names another Project, `app` another module, `environ` adds to the environment, and
    `options` to the command line. Only who is `chatty` speaks to other workers at its start.
    """

    def start(
        name: str = "worker",
        *,
        project: Project | None = None,
        app: str = APP,
        concurrency: int = 2,
        pool: str = "prefork",
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        wait: bool = True,
        chatty: bool = False,
    ) -> Worker:
        chosen = project or request.getfixturevalue("project")
        ready_key = f"ready:{uuid4()}"
        is_redis = chosen.settings.broker_url.startswith("redis")
        if os.environ.get("TESTS_POPS") and is_redis and "-Q" not in options:
            options = (*options, *TWO_QUEUES)
        worker = Worker(
            name,
            app=app,
            environ=chosen.environ(ready_key, environ or {}),
            log_path=log_directory / f"{len(processes)}-{name}.log",
            is_ready=lambda: bool(chosen.effects.client.exists(ready_key)),
            concurrency=concurrency,
            pool="" if pool == "prefork" and os.environ.get("TESTS_SHIFTS") else pool,
            options=options if chatty else (*QUICK, *options),
        )
        processes.append(worker)
        if wait:
            worker.wait_until_ready()
        return worker

    return start


@pytest.fixture
def worker(project: Project) -> Worker:
    """One prefork worker of concurrency 2."""
    return project.start_worker("one")


@pytest.fixture
def workers(project: Project) -> dict[str, Worker]:
    """Two of them."""
    return project.start_workers("one", "two")


@pytest.fixture
def start_beat(
    request: pytest.FixtureRequest, processes: list[CeleryProcess], log_directory: Path
) -> Callable[..., Beat]:
    """Start a beat of `project`, with the sweep in its schedule, and wait until it is ready."""

    def start(
        name: str = "beat",
        *,
        project: Project | None = None,
        app: str = APP,
        schedule: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> Beat:
        chosen = project or request.getfixturevalue("project")
        entries = SWEEP_SCHEDULE if schedule is None else dict(schedule)
        settings = replace(
            chosen.settings, celery={**chosen.settings.celery, "beat_schedule": entries}
        )
        ready_key = f"ready:{uuid4()}"
        beat = Beat(
            name,
            app=app,
            environ={
                **chosen.environ(ready_key, environ or {}),
                "CELERY_SETTINGS": settings.to_environ()["CELERY_SETTINGS"],
            },
            log_path=log_directory / f"{len(processes)}-{name}.log",
            is_ready=lambda: bool(chosen.effects.client.exists(ready_key)),
            options=options,
        )
        processes.append(beat)
        if wait:
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
