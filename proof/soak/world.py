"""A world: servers, workers that are started again when they die, and a publisher."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import redis
from celery.states import READY_STATES

from celery_reliable.results.fenced import MARK
from proof.checker import NotALogError, check
from proof.cuts.log import Log, Outcomes
from proof.leftovers import LEDGER, left_in
from proof.soak import servers
from proof.soak.deaths import Deaths
from proof.soak.load import AT_MOST
from proof.soak.plan import LEASE_SECONDS, WORKERS
from proof.soak.publisher import REFUSED, STOP
from tests.integration.project.factory import Settings
from tests.support.effects import Effects
from tests.support.faketime import SKEWED_PYTHON, Clock, faketime_library
from tests.support.preloaded import REPOSITORY, Forked, start_celery
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer

__all__ = ["PUBLISHER", "RELIABLE", "SKEWED", "SoakWorld"]

#: Times as short as settings allow on a machine that is busy.
RELIABLE = {
    "LEASE_SECONDS": LEASE_SECONDS,
    "SWEEP_SECONDS": 0.5,
    "QUEUED_SECONDS": 4.6,
    "WITNESS_SECONDS": 1,
    "DEAD_LETTER_MAX": 10_000,
}
PUBLISHER = "publisher"
#: The worker whose clock can be set: it starts more slowly, so it is one.
SKEWED = WORKERS[0]
_APP = "proof.soak.app"
_QUIET = ("--without-mingle", "--without-gossip", "--without-heartbeat")
_READY_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.25
#: No task is put off so far by itself.
_FAR_SECONDS = 600.0
_RECORD = f"{LEDGER}task:"
_CLAIMS = f"{LEDGER}claims:"
#: So many looks in a row have to find nothing of any task.
_EMPTY_LOOKS = 5
_RESULT = "celery-task-meta-"


class SoakWorld:
    """Runs until it is told to come to rest; then it says what happened in it."""

    def __init__(self, folder: Path, set_up: str, seed: str) -> None:
        self._folder = folder
        self.set_up = set_up
        self._seed = seed
        self._ends = contextlib.ExitStack()
        self.workers: dict[str, Worker] = {}
        self._skewed = {SKEWED}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        where = self._folder / "effects"
        where.mkdir(parents=True)
        self._effects_server = RedisServer(where, {"appendonly": "no"})
        self._ends.enter_context(self._effects_server)
        self.effects = Effects(self._effects_server.client())
        self.log = Log(self._effects_server.client())
        self.servers = servers.make(self.set_up, self._folder, (*WORKERS, PUBLISHER))
        self._ends.callback(self.servers.close)
        where, library = self._folder / "clock-of-a-worker", faketime_library()
        #: None without libfaketime.
        self.clock = Clock(where, library, is_cached=True) if library else None
        for server in self.servers.publishing_results():
            # A client that nobody has is closed.
            client = self._ends.enter_context(server.client(socket_timeout=None))
            listener = Outcomes(client, Log(self._effects_server.client()))
            self._ends.callback(listener.close)
        self.deaths = Deaths(
            Effects(self._effects_server.client()).now,
            lambda: self.servers.master.client(),
            self._process,
        )
        self._ends.callback(self.deaths.close)
        self._ends.callback(self._end_processes)
        self._publisher: Forked | None = None
        for name, at_most in AT_MOST.items():
            self.log.note("object", object=name, at_most=at_most)
        for name in WORKERS:
            self.start_worker(name)
        for worker in self.workers.values():
            worker.wait_until_ready(_READY_SECONDS)

    def close(self) -> None:
        """End all of it."""
        self._ends.close()

    def now(self) -> float:
        """Seconds of the clock of the log."""
        return self.effects.now()

    def let_pass(self, seconds: float) -> None:
        """Let time pass in the world; who dies by itself is started again, as a supervisor does."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.supervise()
            time.sleep(min(left, _POLL_SECONDS))

    def supervise(self) -> None:
        """Start again who has ended."""
        for name, worker in list(self.workers.items()):
            if not worker.is_running:
                worker.end()
                self.start_worker(name)

    def start_worker(self, name: str) -> Worker:
        """Start a worker of this name, and do not wait for it."""
        ready_key = f"ready:{uuid4()}"
        environ = {**self._environ(name), "READY_KEY": ready_key}
        if name in self._skewed and self.clock is not None:
            environ.update({**self.clock.environ, "PYTHONPATH": str(SKEWED_PYTHON)})
        worker = Worker(
            name,
            app=_APP,
            environ=environ,
            log_path=self._folder / f"{name}.log",
            is_ready=lambda: bool(self.effects.client.exists(ready_key)),
            options=_QUIET,
        )
        self.workers[name] = worker
        return worker

    def start_publishing(self) -> None:
        """Start who publishes all the time."""
        with (self._folder / "publisher.log").open("ab") as log, open(os.devnull, "rb") as nothing:
            self._publisher = start_celery(
                [self._seed],
                module="proof.soak.publisher",
                cwd=self._folder,
                env={**self._environ(PUBLISHER), "PYTHONPATH": str(REPOSITORY)},
                stdin=nothing,
                stdout=log,
                stderr=log,
            )

    def stop_publishing(self) -> None:
        """Tell it to end, and wait until it has.  Raises AssertionError when it fails."""
        if self._publisher is None:
            return
        self.effects.open_gate(STOP)
        publisher, self._publisher = self._publisher, None
        try:
            code = publisher.wait(_STOP_SECONDS)
        finally:
            publisher.kill()
        assert code == 0, f"the publisher ended with {code}"

    def settings(self, client: str) -> Settings:
        """What a process of this name is told."""
        kwargs = self._effects_server.url()
        return Settings(effects_url=kwargs, reliable=RELIABLE, **self.servers.settings_of(client))

    def begin_anew(self, *, later_seconds: int = 0) -> None:
        """Stop all workers, and start others, by clocks that are so far ahead: what waits for a
        time that a clock has given it, wherever, waits no more.
        """
        for worker in self.workers.values():
            worker.stop(_STOP_SECONDS)
            worker.end()
        if later_seconds:
            assert self.clock is not None
            self.clock.set_off(later_seconds)
            self.servers.set_off(later_seconds)
            self._skewed = set(WORKERS)
        for name in list(self.workers):
            self.start_worker(name)
        for worker in self.workers.values():
            worker.wait_until_ready(_READY_SECONDS)

    def rest(
        self, deadline_seconds: float, replay: Callable[[], None], *, may_be_put_off: bool
    ) -> str:
        """Wait until each task has ended and nothing is left; or, if that may be, until what is
        left waits for a time that is far away.

        Returns what is wrong if that takes too long.

        Dead letters run again, as often as there are any.
        """
        until, empty_looks = time.monotonic() + deadline_seconds, 0
        while time.monotonic() < until:
            try:
                if self.letters():
                    replay()
                left = self.left()
                empty_looks = 0 if left else empty_looks + 1
                # What is nowhere will not end: it is for the oracle to say why.
                if empty_looks and (not self.open_tasks() or empty_looks > _EMPTY_LOOKS):
                    return ""
                records = {key for key in left if key.startswith(_RECORD)}
                if may_be_put_off and records and records == self._records_put_off():
                    return ""
            except redis.RedisError as error:
                print(f"at rest: {type(error).__name__}: {error}", flush=True)
            self.let_pass(1.0)
        return f"not at rest after {deadline_seconds:g} s"

    def put_off(self) -> set[str]:
        """The tasks that wait for a time which is far away, as long as no clock was set on."""
        client = self.servers.databases()[0]
        ahead_ms = int(client.hget(f"{LEDGER}clock", "offset_ms") or 0)
        far_ms = (client.time()[0] + _FAR_SECONDS) * 1000 + ahead_ms
        found: list[bytes] = client.zrangebyscore(f"{LEDGER}later", far_ms, "inf")  # type: ignore[assignment]
        return {one.decode() for one in found}

    def most_off(self, seconds: int) -> float:
        """By how many seconds the time is off at which a task was done, as its worker says; the one
        that comes closest to *seconds* of those whose results are stored by now.
        """
        results = self.servers.results()
        keys = list(results.scan_iter(f"{_RESULT}*", count=1000))
        texts: list[bytes | None] = results.mget(keys) if keys else []  # type: ignore[assignment]
        done = [json.loads(text or b"{}").get("date_done") for text in texts]
        found = [datetime.fromisoformat(at).timestamp() - time.time() for at in done if at]
        return min(found, key=lambda off: abs(off - seconds), default=0.0)

    def _records_put_off(self) -> set[str]:
        return {_RECORD + task for task in self.put_off()}

    def letters(self) -> int:
        """How many dead letters there are."""
        return int(self.servers.databases()[0].zcard(f"{LEDGER}dead"))

    def left(self) -> list[str]:
        """The keys that would not be there if nothing had happened."""
        return left_in(*self.servers.databases())

    def rows(self) -> list[dict[str, Any]]:
        """The log, with the outcomes that nobody was heard to publish."""
        rows = self.log.rows({})
        heard = _heard(rows)
        results, at = self.servers.results(), int(self.now() * 1_000_000)
        for key in results.scan_iter(f"{_RESULT}*", count=1000):
            task = key.decode().removeprefix(_RESULT)
            if task in heard:
                continue
            stored = json.loads(results.get(key) or b"{}")
            if stored.get("status") in READY_STATES:
                fields = {"state": stored["status"], "by": stored.get(MARK)}
                rows.append({"kind": "settled", "at": at, "task": task, **fields})
        return sorted(rows, key=lambda row: float(row["at"]))

    def told_of_left(self) -> str:
        """What stands in those keys, and what is known of workers that have left claims: for who
        looks for the cause.
        """
        lines = []
        for client in self.servers.databases():
            for key in left_in(client):
                lines.append(f"{key} {_content(client, key)}")
                if key.startswith(_CLAIMS):
                    lines += _of_worker(client, key.removeprefix(_CLAIMS))
        return "\n".join(lines)

    def open_tasks(self) -> list[str]:
        """The tasks without an outcome."""
        try:
            verdict = check(self.rows())
        except NotALogError:
            return []
        open_ = ("lost", "unfinished", "chord missing")
        return [fault.what for fault in verdict.faults if fault.kind in open_]

    def refused(self) -> dict[str, int]:
        """How many calls of the publisher raised, by what they raised."""
        found: dict[bytes, bytes] = self.effects.client.hgetall(REFUSED)  # type: ignore[assignment]
        return {name.decode(): int(count) for name, count in found.items()}

    def _process(self, name: str) -> int | None:
        # Who asks is another thread: it may not reap what this one waits for.
        worker = self.workers.get(name)
        if worker is None:
            return None
        try:
            status = psutil.Process(worker.pid).status()
        except psutil.NoSuchProcess:
            return None
        return None if status == psutil.STATUS_ZOMBIE else worker.pid

    def _environ(self, client: str) -> dict[str, str]:
        # A call that waits long for what is away says so.
        return {**os.environ, **self.settings(client).to_environ(), "READY_KEY": "ready:none"}

    def _end_processes(self) -> None:
        if self._publisher is not None:
            self._publisher.kill()
        for worker in self.workers.values():
            with contextlib.suppress(AssertionError):
                worker.end()


def _heard(rows: list[dict[str, Any]]) -> set[str]:
    """The tasks of which an outcome was heard since they were published last.

    Celery does not store a success over another one, and so tells nobody of it.
    """
    found: set[str] = set()
    for row in sorted(rows, key=lambda row: float(row["at"])):
        if row["kind"] == "settled":
            found.add(row["task"])
        elif row["kind"] in ("publish", "reopened"):
            found.discard(row["task"])
    return found


def _content(client: redis.Redis, key: str) -> Any:
    kind = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    return client.lrange(key, 0, -1) if kind == b"list" else client.get(key)


def _of_worker(client: redis.Redis, worker: str) -> list[str]:
    """What the ledger knows of a worker, and what it knows of itself."""
    until = client.zscore(f"{LEDGER}workers", worker)
    keys = [f"{LEDGER}worker:{worker}", f"{LEDGER}taken:{worker}", f"{LEDGER}meta"]
    told = [f"    {key} {_content(client, key)}" for key in keys]
    return [f"    its lease ends at {until}, it is {client.time()[0]} s", *told]
